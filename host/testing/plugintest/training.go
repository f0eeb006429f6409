package plugintest

import (
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Training is the state of training one tensor with one optimizer, between two updates. Steps run
// on a machine, as in a host. Refreshes run on the reference implementation in float64, but read
// and write states in the machine's precision.
type Training struct {
	// Program holds the optimizer's programs for the tensor.
	Program spec.Optimizer
	// RunSteps and Loss are inputs of updates: the length of the run and the current loss.
	RunSteps int
	Loss     float64
	// Slope returns the gradient at x, for optimizers that take a second gradient.
	Slope func(x []float64) []float64
	// Sampled is the next update's gradient with sampled labels, for optimizers that take it.
	Sampled []float64
	// Global holds the sums of collected values over all tensors of the optimizer. If nil, there is
	// only this tensor.
	Global map[string]float64

	m     Bench
	shape []int
	step  int
	// state holds x and the state tensors by their input names.
	state map[string]reference.Tensor
}

// BuildOptimizer returns the optimizer's programs for a tensor. Its Values are replaced by the
// given settings, completed by defaults.
func BuildOptimizer(t testing.TB, o sdk.Optimizer, given map[string]any,
	tensor sdk.Tensor) spec.Optimizer {
	t.Helper()
	tensor.Values = Settings(t, o.Describe(), given)
	built, err := sdk.BuildOptimizer(o, tensor)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// Train starts training the tensor from the value x, with settings as for [BuildOptimizer].
func (m Bench) Train(t testing.TB, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor,
	x []float64) *Training {
	t.Helper()
	built := BuildOptimizer(t, o, given, tensor)
	if !built.Accepts {
		t.Fatalf("%s does not accept the %s %s of shape %v", o.Describe().Name, tensor.Role, tensor.Name,
			tensor.Shape)
	}
	r := &Training{Program: built, m: m, shape: tensor.Shape, state: map[string]reference.Tensor{}}
	r.state[spec.InputX] = reference.Floats(x, tensor.Shape...)
	r.run(t, m, built.Init)
	return r
}

// X returns the parameters, row by row.
func (r *Training) X() []float64 { return r.state[spec.InputX].Float64s() }

// State returns a state tensor.
func (r *Training) State(name string) []float64 { return r.state[spec.StatePrefix+name].Float64s() }

func (r *Training) tell(gradient []float64, rate float64) {
	r.state[spec.InputGradient] = reference.Floats(gradient, r.shape...)
	r.state[spec.InputStep] = reference.Float(float64(r.step + 1))
	r.state[spec.InputRate] = reference.Float(rate)
	r.state[spec.InputNoise] = reference.Uints([]uint32{uint32(r.step), 7}, 2)
	r.state[spec.InputSteps] = reference.Float(float64(r.RunSteps))
	r.state[spec.InputLoss] = reference.Float(r.Loss)
}

// Collect returns the values that the optimizer collects before the next update, by input name.
func (r *Training) Collect(t testing.TB, gradient []float64, rate float64) map[string]float64 {
	t.Helper()
	r.tell(gradient, rate)
	r.run(t, r.m, r.Program.Collect)
	collected := map[string]float64{}
	if p := r.Program.Collect; p != nil {
		for _, o := range p.Outputs {
			collected[o.Name] = r.state[o.Name].Floats[0]
		}
	}
	return collected
}

// Update performs one step: an observation, a refresh if one is due, and the update x ← x − α·u. α
// is the given rate of the schedule or the optimizer's own. There is no weight decay.
func (r *Training) Update(t testing.TB, gradient []float64, rate float64) {
	t.Helper()
	global := r.Global
	if global == nil {
		global = r.Collect(t, gradient, rate)
	}
	for name, sum := range global {
		r.state[name] = reference.Float(sum)
	}
	r.tell(gradient, rate)
	r.probe(t, gradient)
	r.step++
	r.run(t, r.m, r.Program.Rate)
	if r.Program.Rate != nil {
		rate = r.state[spec.OutputRate].Floats[0]
	}
	r.run(t, r.m, r.Program.Observe)
	switch due, first := r.Program.Due.At(r.step); {
	case due && first:
		r.run(t, Reference(), r.Program.FirstRefresh)
	case due:
		r.run(t, Reference(), r.Program.Refresh)
	}
	r.run(t, r.m, r.Program.Update)
	x, u := r.X(), r.state[spec.OutputDirection].Floats
	r.keep(spec.InputX, reference.Floats(floats.AddScaledTo(make([]float64, len(x)), x, -rate, u),
		r.shape...))
}

// probe computes the second gradient for the next update if one is due.
func (r *Training) probe(t testing.TB, gradient []float64) {
	t.Helper()
	probed, probing := gradient, 0.0
	due, _ := r.Program.ProbeDue.At(r.step + 1)
	switch {
	case due && r.Program.Sampled:
		probed, probing = r.Sampled, 1
	case due:
		r.run(t, r.m, r.Program.Probe)
		probed, probing = r.Slope(floats.AddTo(make([]float64, len(gradient)), r.X(),
			r.state[spec.OutputOffset].Floats)), 1
	}
	r.state[spec.InputProbed], r.state[spec.InputProbing] = reference.Floats(probed, r.shape...),
		reference.Float(probing)
}

// Evaluated returns the parameters to be used for evaluating the model.
func (r *Training) Evaluated(t testing.TB) []float64 {
	t.Helper()
	if r.Program.Evaluate == nil {
		return r.X()
	}
	r.run(t, r.m, r.Program.Evaluate)
	return r.state[spec.OutputWeights].Float64s()
}

// Steps performs one update for each gradient along the first axis, with a constant rate, and
// returns the final parameters.
func (r *Training) Steps(t testing.TB, gradients golden.Array, rate float64) []float64 {
	t.Helper()
	for i := range gradients.Shape[0] {
		r.Update(t, gradients.Row(i).Data, rate)
	}
	return r.X()
}

// run executes p, unless it is nil, with its inputs taken from the state, and stores its outputs
// there.
func (r *Training) run(t testing.TB, m Bench, p *program.Program) {
	t.Helper()
	if p == nil {
		return
	}
	inputs := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		inputs[in.Name] = r.state[in.Name]
	}
	for name, v := range m.Run(t, p, inputs) {
		r.keep(name, v)
	}
}

// keep stores v under name, rounded to the machine's precision.
func (r *Training) keep(name string, v reference.Tensor) {
	if !r.m.Double() {
		v = v.Single()
	}
	for _, s := range r.Program.State {
		if spec.StatePrefix+s.Name == name && s.Storage != sdk.StoreFloat32 {
			v = kept(v, s.Storage)
		}
	}
	r.state[name] = v
}

// kept returns a state tensor rounded to its storage type.
func kept(v reference.Tensor, storage sdk.Storage) reference.Tensor {
	data := make([]float64, len(v.Floats))
	for i, x := range v.Floats {
		data[i] = storage.Round(x)
	}
	return reference.Floats(data, v.Type.Shape...)
}
