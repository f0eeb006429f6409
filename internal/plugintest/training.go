package plugintest

import (
	"maps"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Training is a tensor in training under one optimizer, between two updates. A
// machine runs its steps as a host does; refreshes run on the oracle in binary64,
// from and to a state in the machine's precision.
type Training struct {
	// Decay and DecayLast are those of a [Trajectory].
	Decay     float64
	DecayLast bool
	// Program is what the optimizer answered for the tensor.
	Program sdk.OptimizerProgram

	m     Machine
	shape []int
	step  int
	// state holds x and the state tensors by the names of inputs.
	state map[string]reference.Tensor
	// first is a step up to the refresh, last from there on.
	first, last *program.Program
}

// inputRate names the learning rate among the inputs of a step.
const inputRate = "rate"

// Train begins a training of the tensor, whose Values are replaced by the given
// settings and the defaults of the rest, from the value x.
func (m Machine) Train(t testing.TB, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor, x []float64) *Training {
	t.Helper()
	tensor.Values = Settings(t, o.Describe(), given)
	built, err := sdk.BuildOptimizer(o, tensor)
	if err != nil {
		t.Fatal(err)
	}
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

// Kept begins a training of the same tensor where this one stands, with all that a
// checkpoint holds, in binary32: x, the state, and the number of the update.
func (r *Training) Kept(t testing.TB, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor) *Training {
	t.Helper()
	kept := r.m.Train(t, o, given, tensor, r.X())
	kept.Decay, kept.DecayLast, kept.step = r.Decay, r.DecayLast, r.step
	for name := range kept.state {
		kept.state[name] = single(r.state[name])
	}
	return kept
}

// single is v with its numbers rounded to binary32.
func single(v reference.Tensor) reference.Tensor {
	v = v.Clone()
	for i, f := range v.Floats {
		v.Floats[i] = float64(float32(f))
	}
	return v
}

// Update makes one step: decay, observation, a refresh if it is due, the update.
func (r *Training) Update(t testing.TB, gradient []float64, rate float64) {
	t.Helper()
	if r.first == nil {
		r.write(t)
	}
	r.step++
	r.state[sdk.InputGradient] = reference.Floats(gradient, r.shape...)
	r.state[sdk.InputStep] = reference.Float(float64(r.step))
	r.state[inputRate] = reference.Float(rate)
	r.run(t, r.m, r.first)
	switch due, first := r.Program.Due.At(r.step); {
	case due && first:
		r.run(t, Oracle(), r.Program.FirstRefresh)
	case due:
		r.run(t, Oracle(), r.Program.Refresh)
	}
	r.run(t, r.m, r.last)
}

// run executes p on what it asks for of the state and takes over what it returns.
func (r *Training) run(t testing.TB, m Machine, p *program.Program) {
	t.Helper()
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

// write puts the host's part around the optimizer's programs. Decay comes before
// the observation, unless it is last.
func (r *Training) write(t testing.TB) {
	t.Helper()
	r.first = r.half(t, "before-refresh", func(h half) {
		x := h.in[sdk.InputX]
		if !r.DecayLast {
			x = x.Mul(h.keep)
			h.in[sdk.InputX] = x
		}
		h.outputs(r.Program.Observe)
		h.b.Output(sdk.InputX, x)
	})
	r.last = r.half(t, "after-refresh", func(h half) {
		x := h.in[sdk.InputX].Sub(h.outputs(r.Program.Update)[sdk.OutputDirection].Mul(h.in[inputRate]))
		if r.DecayLast {
			x = x.Mul(h.keep)
		}
		h.b.Output(sdk.InputX, x)
	})
}

// half is one half of a step under construction.
type half struct {
	b    *program.Builder
	in   map[string]program.Value
	keep program.Value // 1 − αω
}

// half builds a program that has all inputs of a step.
func (r *Training) half(t testing.TB, name string, body func(h half)) *program.Program {
	t.Helper()
	h := half{b: program.NewBuilder(name), in: map[string]program.Value{}}
	for _, in := range r.Program.Update.Inputs {
		h.in[in.Name] = h.b.Input(in.Name, in.Type)
	}
	h.in[inputRate] = h.b.Input(inputRate, program.FloatType())
	h.keep = h.in[inputRate].Scale(r.Decay).Neg().Shift(1)
	body(h)
	p, err := h.b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outputs inlines p, unless it is absent, and makes outputs of the state tensors
// that it returns.
func (h half) outputs(p *program.Program) map[string]program.Value {
	if p == nil {
		return nil
	}
	args := make([]program.Value, len(p.Inputs))
	for i, in := range p.Inputs {
		args[i] = h.in[in.Name]
	}
	results := h.b.Inline(p, args...)
	for _, o := range p.Outputs {
		if strings.HasPrefix(o.Name, sdk.StatePrefix) {
			h.b.Output(o.Name, results[o.Name])
		}
	}
	return results
}
