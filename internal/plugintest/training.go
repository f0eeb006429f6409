package plugintest

import (
	"maps"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Training is a tensor in training under one optimizer, between two updates. A
// machine runs its steps as a host does; refreshes run on the oracle in binary64,
// from and to a state in the machine's precision.
type Training struct {
	// Program is what the optimizer answered for the tensor.
	Program sdk.OptimizerProgram

	m     Machine
	shape []int
	step  int
	// state holds x and the state tensors by the names of inputs.
	state map[string]reference.Tensor
	// apply is the update with the step x ← x − α·u behind it.
	apply *program.Program
}

// inputRate names the learning rate among the inputs of a step.
const inputRate = "rate"

// BuildOptimizer returns the programs for a tensor, whose Values are replaced by the
// given settings and the defaults of the rest.
func BuildOptimizer(t testing.TB, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor) sdk.OptimizerProgram {
	t.Helper()
	tensor.Values = Settings(t, o.Describe(), given)
	built, err := sdk.BuildOptimizer(o, tensor)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// Train begins a training of the tensor from the value x; its settings are those of
// [BuildOptimizer].
func (m Machine) Train(t testing.TB, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor, x []float64) *Training {
	t.Helper()
	built := BuildOptimizer(t, o, given, tensor)
	if !built.Accepts {
		t.Fatalf("%s does not accept the %s %s of shape %v", o.Describe().Name, tensor.Role, tensor.Name, tensor.Shape)
	}
	r := &Training{Program: built, m: m, shape: tensor.Shape, state: map[string]reference.Tensor{}}
	start := map[string]reference.Tensor{sdk.InputX: reference.Floats(x, tensor.Shape...)}
	if built.Init != nil {
		r.state = m.Run(t, built.Init, start)
	}
	maps.Copy(r.state, start)
	return r
}

// X returns the parameters, row by row.
func (r *Training) X() []float64 { return r.state[sdk.InputX].Float64s() }

// State returns a state tensor.
func (r *Training) State(name string) []float64 { return r.state[sdk.StatePrefix+name].Float64s() }

// single is v with its numbers rounded to binary32.
func single(v reference.Tensor) reference.Tensor {
	v = v.Clone()
	for i, f := range v.Floats {
		v.Floats[i] = float64(float32(f))
	}
	return v
}

// Update makes one step: observation, a refresh if it is due, the update,
// x ← x − α·u. Decay is no part of it.
func (r *Training) Update(t testing.TB, gradient []float64, rate float64) {
	t.Helper()
	if r.apply == nil {
		r.apply = r.write(t)
	}
	r.step++
	r.state[sdk.InputGradient] = reference.Floats(gradient, r.shape...)
	r.state[sdk.InputStep] = reference.Float(float64(r.step))
	r.state[inputRate] = reference.Float(rate)
	r.run(t, r.m, r.Program.Observe)
	switch due, first := r.Program.Due.At(r.step); {
	case due && first:
		r.run(t, Oracle(), r.Program.FirstRefresh)
	case due:
		r.run(t, Oracle(), r.Program.Refresh)
	}
	r.run(t, r.m, r.apply)
}

// Steps makes an update for each gradient along the first axis, all at one rate, and
// returns the parameters after the last.
func (r *Training) Steps(t testing.TB, gradients golden.Tensor, rate float64) []float64 {
	t.Helper()
	for i := range gradients.Shape[0] {
		r.Update(t, gradients.Row(i).Data, rate)
	}
	return r.X()
}

// run executes p, unless it is absent, on what it asks for of the state and takes over
// what it returns.
func (r *Training) run(t testing.TB, m Machine, p *program.Program) {
	t.Helper()
	if p == nil {
		return
	}
	inputs := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		inputs[in.Name] = r.state[in.Name]
	}
	for name, v := range m.Run(t, p, inputs) {
		if !r.m.Double {
			v = single(v)
		}
		r.state[name] = v
	}
}

// write puts the step of the host behind the optimizer's update.
func (r *Training) write(t testing.TB) *program.Program {
	t.Helper()
	b := program.NewBuilder("step")
	var args []program.Value
	in := map[string]program.Value{}
	for _, p := range r.Program.Update.Inputs {
		in[p.Name] = b.Input(p.Name, p.Type)
		args = append(args, in[p.Name])
	}
	rate := b.Input(inputRate, program.FloatType())
	results := b.Inline(r.Program.Update, args...)
	for _, o := range r.Program.Update.Outputs {
		if o.Name == sdk.OutputDirection {
			b.Output(sdk.InputX, in[sdk.InputX].Sub(results[o.Name].Mul(rate)))
			continue
		}
		b.Output(o.Name, results[o.Name])
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
