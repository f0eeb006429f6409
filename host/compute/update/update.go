package update

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Tensors holds buffers on a device, by name.
type Tensors map[string]*engine.Buffer

// Scalars holds the scalar inputs of a run, which all programs share, by the names of the
// programs' inputs.
type Scalars map[string]float32

// Vector returns the scalars with the given names, in that order.
func (s Scalars) Vector(names ...string) ([]float32, error) {
	values := make([]float32, len(names))
	for i, name := range names {
		v, ok := s[name]
		if !ok {
			return nil, fmt.Errorf("the scalar %s is missing", name)
		}
		values[i] = v
	}
	return values, nil
}

// Measures holds the scalars that programs report to the host: by the name of the
// program's output, then by the job's tensor.
type Measures map[string]map[string]float64

// set stores the measure of one tensor.
func (m Measures) set(name, tensor string, value float32) {
	if m[name] == nil {
		m[name] = map[string]float64{}
	}
	m[name][tensor] = float64(value)
}

// A Job is a program bound to tensors by name.
type Job struct {
	// Tensor is the trained tensor that the program works on.
	Tensor  string
	Program *program.Program
	// Inputs and Outputs map the names of the program's inputs and outputs to tensors. An
	// input without an entry is a scalar of the run. An output without an entry is a
	// measure, a float scalar.
	Inputs, Outputs map[string]string
	// Storage says how those tensors are kept that are not float32 or keys of random bits. The
	// program takes and returns floats in their place.
	Storage map[string]sdk.Storage
	// Donated is the set of inputs, by the program's names, whose memory the run may overwrite or
	// free. It has no effect on a tensor that another job of the update reads, too.
	Donated map[string]bool
}

// measures lists the outputs that go to the host.
func (j *Job) measures() []string {
	var list []string
	for _, o := range j.Program.Outputs {
		if _, bound := j.Outputs[o.Name]; !bound {
			list = append(list, o.Name)
		}
	}
	return list
}

// An Executor is one way to run programs on a device.
type Executor interface {
	// Name returns a word for the executor, used in messages.
	Name() string
	// Compile prepares the jobs that the executor can run, to be run together, and
	// refuses the others. The runner is nil if it refuses all of them.
	Compile(dev *engine.Device, name string, jobs []Job) (Runner, []Refusal, error)
}

// A Runner runs the jobs that an executor has compiled.
type Runner interface {
	// Run computes the jobs from the tensors in in. It puts the new tensors into out, in
	// new buffers or in those of donated inputs, which are then gone.
	Run(in Tensors, scalars Scalars, out Tensors, measures Measures) error
	Close()
}

// A Refusal says why an executor does not run a job. The program itself is not at fault.
type Refusal struct {
	Job    Job
	Reason error
}

// Options are the options of an update.
type Options struct {
	Stacking Stacking
	// Lower builds the graph of a job, from its inputs by name to its outputs by name,
	// instead of lowering the job's program; nil lowers the program.
	Lower LowerFunc
	// Executors are tried in this order. If it is nil, they are [CPU] and then [Graph],
	// which takes every program, or with Lower only [Graph].
	Executors []Executor
	// Memory returns memory of the caller's into which a new tensor is to be written, where
	// executors can choose: [CPU] does. nil, and a nil slice, mean memory of the device.
	Memory func(tensor string) []float32
	// Places says where the device keeps tensors.
	Places Places
}

// An Update is a compiled list of jobs.
type Update struct {
	runners  []Runner
	consumed []string // donated tensors that the jobs do not replace
	// Executed is the number of jobs that each executor runs, by the executor's name.
	Executed map[string]int
}

// Compile prepares jobs for a device. No two of them may replace the same tensor.
func Compile(dev *engine.Device, name string, jobs []Job, o Options) (*Update, error) {
	jobs = keepShared(jobs)
	u := &Update{consumed: consumedTensors(jobs), Executed: map[string]int{}}
	executors := o.Executors
	switch {
	case executors != nil:
	case o.Lower != nil:
		executors = []Executor{Graph{o}}
	default:
		executors = []Executor{CPU{o.Memory}, Graph{o}}
	}
	rest := jobs
	var reasons []error
	for _, x := range executors {
		if len(rest) == 0 {
			break
		}
		r, refused, err := x.Compile(dev, name, rest)
		if err != nil {
			u.Close()
			return nil, err
		}
		if r != nil {
			u.runners = append(u.runners, r)
		}
		u.Executed[x.Name()] = len(rest) - len(refused)
		rest, reasons = nil, nil
		for _, f := range refused {
			rest, reasons = append(rest, f.Job), append(reasons, fmt.Errorf("%s: %w", f.Job.Tensor, f.Reason))
		}
	}
	if len(rest) > 0 {
		u.Close()
		return nil, fmt.Errorf("%s: no executor runs %d programs: %w", name, len(rest), errors.Join(reasons...))
	}
	return u, nil
}

// keepShared returns the jobs without donations of tensors that other jobs read, too.
func keepShared(jobs []Job) []Job {
	readers := map[string]int{}
	for _, j := range jobs {
		for _, name := range j.Inputs {
			readers[name]++
		}
	}
	jobs = slices.Clone(jobs)
	for i, j := range jobs {
		jobs[i].Donated = maps.Clone(j.Donated)
		maps.DeleteFunc(jobs[i].Donated, func(input string, _ bool) bool { return readers[j.Inputs[input]] > 1 })
	}
	return jobs
}

// consumedTensors lists the donated tensors that jobs do not replace.
func consumedTensors(jobs []Job) []string {
	var list []string
	for _, j := range jobs {
		replaced := slices.Collect(maps.Values(j.Outputs))
		for input := range j.Donated {
			if name := j.Inputs[input]; !slices.Contains(replaced, name) {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Run computes all jobs and puts the tensors that they write into t, in place of the old
// ones. Tensors that are donated and not replaced are removed from t. After an error,
// some buffers of t may be gone, and others replaced.
func (u *Update) Run(t Tensors, scalars Scalars) (Measures, error) {
	out, measures := Tensors{}, Measures{}
	for _, r := range u.runners {
		if err := r.Run(t, scalars, out, measures); err != nil {
			for _, b := range out {
				b.Finalize()
			}
			return nil, err
		}
	}
	for name, b := range out {
		t[name].Finalize()
		t[name] = b
	}
	for _, name := range u.consumed {
		t[name].Finalize()
		delete(t, name)
	}
	return measures, nil
}

// Close frees what Compile has made.
func (u *Update) Close() {
	for _, r := range u.runners {
		r.Close()
	}
}

// Names of tensors. Those of parameters and states are also the names in checkpoints.

// Param returns the name of a trained tensor.
func Param(tensor string) string { return "param/" + tensor }

// State returns the name of a state tensor that the optimizer of a trained tensor keeps.
func State(tensor, state string) string { return "state/" + tensor + "/" + state }

// Evaluated returns the name of the tensor that the model is evaluated with in the place of a
// trained tensor, where its optimizer gives one or there is an average.
func Evaluated(tensor string) string { return "evaluated/" + tensor }

// Gradient returns the name of the gradient with respect to a trained tensor.
func Gradient(tensor string) string { return "gradient/" + tensor }

// Value returns the name of the quantized value of a weight, as products use it.
func Value(tensor string) string { return "value/" + tensor }

// Point returns the name of the tensor in whose place a second gradient is taken for a trained tensor.
func Point(tensor string) string { return "point/" + tensor }

// Probed returns the name of the second gradient with respect to a trained tensor.
func Probed(tensor string) string { return "probed/" + tensor }

// OptimizerNoise returns the name of the key of random bits that the optimizer of a trained tensor takes.
func OptimizerNoise(tensor string) string { return "optimizer noise/" + tensor }

// GivenX and GivenGradient return the names of what an opaque optimizer is given for a trained tensor, and
// Direction that of what it returns.
func GivenX(tensor string) string        { return "given x/" + tensor }
func GivenGradient(tensor string) string { return "given gradient/" + tensor }
func Direction(tensor string) string     { return "direction/" + tensor }

// Noise returns the name of the key of random bits that the quantizer of a weight or an
// activation site has to itself.
func Noise(site string) string { return "noise/" + site }

// SharedNoise returns the name of the key of random bits that it shares with the
// quantizers of the other operands of its products.
func SharedNoise(site string) string { return "shared noise/" + site }

// Trained returns the name of the trained tensor t of the quantizer for a weight or an
// activation site. Sites that share one have the same name for it.
func Trained(site string, t spec.Tensor) string {
	if t.Shared != "" {
		return "quantizer.shared." + t.Shared
	}
	return "quantizer." + site + "." + t.Name
}

// Kept returns the name of the state tensor s that the quantizer for a weight or an activation
// site keeps from step to step.
func Kept(site, s string) string { return "kept/" + site + "/" + s }

// Part is one of the programs of a rule.
type Part string

// The parts.
const (
	Updating   Part = "update"  // replaces the parameter and the states, and consumes gradients
	Observing  Part = "observe" // replaces states, before a refresh
	Collecting Part = "collect" // gives scalars that are summed over tensors, as measures
	Probing    Part = "probe"   // writes where second gradients are taken, [Point]
	Giving     Part = "given"   // writes what opaque optimizers are given, [GivenX] and [GivenGradient]
)

var programs = map[Part]func(cage.Rule) (*program.Program, error){
	Updating: cage.Rule.Program, Observing: cage.Rule.ObserveProgram, Collecting: cage.Rule.CollectProgram,
	Probing: cage.Rule.ProbeProgram, Giving: cage.Rule.GivenProgram,
}

// Jobs makes the jobs of a part of rules. Rules without it have none.
func Jobs(rules []cage.Rule, of Part) ([]Job, error) {
	var jobs []Job
	for _, r := range rules {
		p, err := programs[of](r)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		j := bind(r, p)
		if of == Updating {
			for _, gradient := range []string{cage.InputGradient, cage.InputProbed} {
				if j.Inputs[gradient] != "" {
					j.Donated[gradient] = true
				}
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// bind binds a program of a rule to tensors, by the names of its inputs and outputs.
func bind(r cage.Rule, p *program.Program) Job {
	j := Job{Tensor: r.Name, Program: p, Inputs: map[string]string{}, Outputs: map[string]string{}, Storage: map[string]sdk.Storage{}, Donated: map[string]bool{}}
	for _, s := range r.State() {
		if s.Storage != sdk.StoreFloat32 {
			j.Storage[State(r.Name, s.Name)] = s.Storage
		}
	}
	for _, in := range p.Inputs {
		if name, ok := tensorOf(r, in.Name); ok {
			j.Inputs[in.Name] = name
		}
	}
	for _, out := range p.Outputs {
		if name, ok := tensorOf(r, out.Name); ok {
			j.Outputs[out.Name] = name
			if j.Inputs[out.Name] == name {
				j.Donated[out.Name] = true
			}
		}
	}
	return j
}

// tensorOf returns the name of the tensor that an input or output of a rule's program is
// bound to; ok is false for scalars and measures.
func tensorOf(r cage.Rule, input string) (name string, ok bool) {
	tensor := r.Name
	if state, cut := strings.CutPrefix(input, spec.StatePrefix); cut {
		return State(tensor, state), true
	}
	if r.Quantizer != nil {
		for _, t := range r.Quantizer.Trained {
			if input == spec.TrainedPrefix+t.Name {
				return Param(Trained(tensor, t)), true
			}
		}
	}
	if s, cut := strings.CutPrefix(input, spec.KeptPrefix); cut {
		return Kept(tensor, s), true
	}
	switch {
	case input == cage.InputX:
		return Param(tensor), true
	case input == cage.InputGradient:
		return Gradient(tensor), true
	case input == cage.InputQuantized:
		return Value(tensor), true
	case input == spec.InputNoise:
		return Noise(tensor), true
	case input == spec.InputSharedNoise:
		return SharedNoise(tensor), true
	case input == cage.InputOptimizerNoise:
		return OptimizerNoise(tensor), true
	case input == cage.InputProbed:
		return Probed(tensor), true
	case input == cage.OutputPoint:
		return Point(tensor), true
	case input == spec.OutputWeights:
		return Evaluated(tensor), true
	case input == cage.OutputGivenX:
		return GivenX(tensor), true
	case input == cage.OutputGivenGradient:
		return GivenGradient(tensor), true
	case input == cage.InputDirection:
		return Direction(tensor), true
	}
	return "", false
}

// Evaluations makes the jobs for tensors that the model is evaluated with in place of those that
// are trained. They change nothing, and write the tensors of [Evaluated].
func Evaluations(rules []cage.Rule) []Job {
	var jobs []Job
	for _, r := range rules {
		if p := r.EvaluationProgram(); p != nil {
			jobs = append(jobs, bind(r, p))
		}
	}
	return jobs
}

// Inits makes the jobs that initialize states from parameters.
func Inits(rules []cage.Rule) []Job {
	var jobs []Job
	for _, r := range rules {
		for _, p := range r.InitPrograms() {
			jobs = append(jobs, bind(r, p))
		}
	}
	return jobs
}
