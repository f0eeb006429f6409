package cage

import (
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Part is what one of a rule's programs does.
type Part string

// The parts.
const (
	Initializing Part = "init"     // writes the first states, from the parameter
	Evaluating   Part = "evaluate" // writes the tensor that the model is evaluated with
	Collecting   Part = "collect"  // computes scalars that are summed over tensors, as measures
	Probing      Part = "probe"    // writes the point where a second gradient is taken
	Giving       Part = "given"    // writes what an opaque optimizer gets
	Observing    Part = "observe"  // replaces states, before a refresh
	Updating     Part = "update"   // replaces the parameter and the states, and consumes gradients
)

// Jobs returns the programs of a part of all rules, bound to tensors. Most rules have none for most
// parts.
func Jobs(rules []Rule, of Part) (jobs []spec.Job, err error) {
	for _, r := range rules {
		var p *program.Program
		switch of {
		case Initializing:
			for _, p := range r.InitPrograms() {
				jobs = append(jobs, r.bind(p))
			}
		case Evaluating:
			p = r.EvaluationProgram()
		case Collecting:
			p, err = r.CollectProgram()
		case Probing:
			p, err = r.ProbeProgram()
		case Giving:
			p, err = r.GivenProgram()
		case Observing:
			p, err = r.ObserveProgram()
		case Updating:
			p, err = r.Program()
		}
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		j := r.bind(p)
		for _, gradient := range []string{spec.InputGradient, spec.InputProbed} {
			if of == Updating && j.Inputs[gradient] != "" {
				j.Donated[gradient] = true
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// bind binds a program to the rule's tensors, by the names of its inputs and outputs. What
// replaces a tensor may take its memory.
func (r Rule) bind(p *program.Program) spec.Job {
	j := spec.Job{Tensor: r.Name, Program: p, Inputs: map[string]string{}, Outputs: map[string]string{},
		Storage: map[string]spec.Storage{}, Donated: map[string]bool{}}
	for _, s := range r.State() {
		if s.Storage != spec.StoreFloat32 {
			j.Storage[program.KindState.PartOf(r.Name, s.Name)] = s.Storage
		}
	}
	for _, in := range p.Inputs {
		if name := r.tensor(in.Name); name != "" {
			j.Inputs[in.Name] = name
		}
	}
	for _, out := range p.Outputs {
		if name := r.tensor(out.Name); name != "" {
			j.Outputs[out.Name] = name
			if j.Inputs[out.Name] == name {
				j.Donated[out.Name] = true
			}
		}
	}
	return j
}

// kinds are the tensors behind inputs and outputs; those of states and of quantizers' trained
// parameters have prefixes, and others are scalars.
var kinds = map[string]program.Kind{
	spec.InputX: program.KindParam, spec.InputGradient: program.KindGradient, InputQuantized: program.KindValue,
	spec.InputNoise: program.KindNoise, spec.InputSharedNoise: program.KindSharedNoise,
	InputOptimizerNoise: program.KindOptimizerNoise,
	OutputPoint:         program.KindPoint, spec.InputProbed: program.KindProbed,
	spec.OutputWeights: program.KindEvaluated,
	OutputOpaqueX:      program.KindOpaqueX, OutputOpaqueGradient: program.KindOpaqueGradient,
	spec.OutputDirection: program.KindDirection,
}

// tensor is the name of the tensor behind an input or output, "" for a scalar.
func (r Rule) tensor(port string) string {
	if kind, ok := kinds[port]; ok {
		return kind.Of(r.Name)
	}
	if state, ok := strings.CutPrefix(port, spec.StatePrefix); ok {
		return program.KindState.PartOf(r.Name, state)
	}
	if state, ok := strings.CutPrefix(port, spec.KeptPrefix); ok {
		return program.KindQuantizerState.PartOf(r.Name, state)
	}
	if trained, ok := strings.CutPrefix(port, spec.TrainedPrefix); ok {
		for _, t := range r.Quantizer.Trained {
			if t.Name == trained {
				return program.KindParam.Of(t.At(r.Name))
			}
		}
	}
	return ""
}
