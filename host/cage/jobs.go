package cage

import (
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Part identifies one of a rule's programs.
type Part string

// The values of Part.
const (
	Initializing  Part = "init"     // writes the initial states, from the parameter
	Evaluating    Part = "evaluate" // writes the tensor that evaluation uses
	Collecting    Part = "collect"  // computes scalars that are summed over tensors
	Probing       Part = "probe"    // writes the point at which a second gradient is computed
	FeedingOpaque Part = "given"    // writes the inputs of an opaque optimizer
	Observing     Part = "observe"  // replaces states, before a refresh
	Updating      Part = "update"   // replaces the parameter and the states, and donates gradients
)

// Jobs returns the programs of all rules for one part, bound to tensors. Most rules have no program
// for most parts.
func Jobs(rules []Rule, part Part) (jobs []spec.Job, err error) {
	for _, r := range rules {
		if r.Frozen && !(part == Updating && r.Statistics && r.Quantizer != nil) {
			continue
		}
		if r.RateFactor == 0 && (part == Observing || part == Probing) {
			continue // nothing would read the results
		}
		if part != Updating {
			programs, err := r.others(part)
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, lists.Map(programs, r.bind)...)
			continue
		}
		p, err := r.Program()
		if err != nil {
			return nil, err
		}
		j := r.bind(p)
		for _, gradient := range []string{spec.InputGradient, spec.InputProbed} {
			if j.Inputs[gradient] != "" {
				j.Donated[gradient] = true
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (r Rule) others(part Part) (list []*program.Program, err error) {
	o := r.Optimizer
	var p *program.Program
	switch {
	case part == Initializing: // other states are initialized with zeros
		if o.Init != nil {
			list = append(list, o.Init)
		}
		if r.Average != nil {
			p, err = r.copies("average/", spec.InputX, spec.StatePrefix+AverageState)
		}
	case part == Evaluating && r.Average != nil:
		p, err = r.copies("averaged/", spec.StatePrefix+AverageState, spec.OutputWeights)
	case part == Evaluating:
		p = o.Evaluate
	case part == Collecting && o.Collect != nil, part == Probing && r.Probing && o.Probe != nil,
		part == FeedingOpaque && o.Opaque,
		part == Observing && (o.Observe != nil || o.RefreshesReadGradient()):
		p, err = r.before(part)
	}
	if p != nil {
		list = append(list, p)
	}
	return list, err
}

func (r Rule) copies(prefix, from, to string) (*program.Program, error) {
	b := program.NewBuilder(prefix + r.Name)
	b.Output(to, b.Input(from, program.FloatType(r.Shape...)))
	return b.Build()
}

// before returns the program of a part that runs before the update. The optimizer gets the same
// gradient here and in the update. The outputs of Collecting have the names of the update's inputs
// that receive their sums over the tensors of the group.
func (r Rule) before(part Part) (*program.Program, error) {
	if part == Probing {
		r.Probing = false // the second gradient is not computed yet
	}
	inputs := r.Inputs()
	if part == Collecting || part == FeedingOpaque {
		inputs = r.inputs()
	}
	s := r.begin(string(part)+"/", inputs)
	g, o := s.gradient(), r.Optimizer
	switch part {
	case Collecting:
		out := s.optimize(o.Collect, s.x, g)
		for _, sum := range o.Collect.Outputs {
			name := r.global(strings.TrimPrefix(sum.Name, spec.GlobalPrefix))
			s.b.Output(name, out[sum.Name])
		}
	case Probing:
		s.b.Output(OutputPoint, s.x.Add(s.optimize(o.Probe, s.x, g)[spec.OutputOffset]))
	case FeedingOpaque: // x, after weight decay if that is applied first, and the gradient
		s.setRate(g)
		s.b.Output(OutputOpaqueX, s.decayFirst(s.x))
		s.b.Output(OutputGivenGradient, g)
	case Observing:
		s.setRate(g)
		if o.Observe != nil {
			s.optimize(o.Observe, s.decayFirst(s.x), g)
			for _, out := range o.Observe.Outputs {
				s.b.Output(out.Name, s.state[strings.TrimPrefix(out.Name, spec.StatePrefix)])
			}
		}
		if o.RefreshesReadGradient() {
			s.b.Output(OutputGivenGradient, g)
		}
	}
	return s.build()
}

// bind binds a program to the rule's tensors, by the names of its inputs and outputs. Outputs that
// replace a tensor may reuse its memory.
func (r Rule) bind(p *program.Program) spec.Job {
	j := spec.Job{Tensor: r.Name, Program: p, Inputs: map[string]string{},
		Outputs: map[string]string{}, Storage: map[string]spec.Storage{}, Donated: map[string]bool{}}
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

// kinds maps inputs and outputs to the kinds of their tensors. States and trained parameters of
// quantizers are recognized by prefixes; all others are scalars.
var kinds = map[string]program.Kind{
	spec.InputX:           program.KindParam,
	spec.InputGradient:    program.KindGradient,
	InputError:            program.KindError,
	InputQuantized:        program.KindValue,
	spec.InputNoise:       program.KindNoise,
	spec.InputSharedNoise: program.KindSharedNoise,
	InputOptimizerNoise:   program.KindOptimizerNoise,
	OutputPoint:           program.KindPoint,
	spec.InputProbed:      program.KindProbed,
	spec.OutputWeights:    program.KindEvaluated,
	OutputOpaqueX:         program.KindOpaqueX,
	OutputGivenGradient:   program.KindGivenGradient,
	spec.OutputDirection:  program.KindDirection,
}

// tensor returns the name of the tensor bound to an input or output; "" if that is a scalar.
func (r Rule) tensor(port string) string {
	if r.Frozen && port == spec.InputX {
		return program.KindMerged.Of(r.Name)
	}
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
