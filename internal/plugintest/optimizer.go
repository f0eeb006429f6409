package plugintest

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Trajectory is what an optimizer is driven through: a start, and for each step a
// gradient (the first axis of Gradients) and a learning rate.
type Trajectory struct {
	Start     golden.Tensor
	Gradients golden.Tensor
	Rates     []float64
	// Decay is the coefficient ω of decoupled weight decay, the host's part.
	Decay float64
}

// Optimize drives o through tr in the order of the CAGE paper's Algorithm 1, as a
// host does: x ← (1 − αω)·x, then u from the optimizer, then x ← x − α·u. It
// returns the parameters after each step, one after the other.
func (m Machine) Optimize(t testing.TB, o sdk.Optimizer, given map[string]any, tr Trajectory) []float64 {
	t.Helper()
	shape := tr.Start.Shape
	built, err := sdk.BuildOptimizer(o, sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: shape, Values: Settings(t, o.Describe(), given)})
	if err != nil {
		t.Fatal(err)
	}
	step := hostStep(t, built, shape, tr.Decay)
	x := reference.Floats(tr.Start.Data, shape...)
	state := map[string]reference.Tensor{}
	if built.Init != nil {
		state = m.Run(t, built.Init, map[string]reference.Tensor{sdk.InputX: x})
	}
	var trace []float64
	for i, rate := range tr.Rates {
		state[sdk.InputX] = x
		state[sdk.InputGradient] = reference.Floats(tr.Gradients.Row(i).Data, shape...)
		state[sdk.InputStep] = reference.Float(float64(i + 1))
		state["rate"] = reference.Float(rate)
		state = m.Run(t, step, state)
		x = state[sdk.InputX]
		trace = append(trace, x.Float64s()...)
	}
	return trace
}

// hostStep puts the host's part around the update: a program from x, gradient,
// step, rate and the state to the next x and state.
func hostStep(t testing.TB, o sdk.OptimizerProgram, shape []int, decay float64) *program.Program {
	t.Helper()
	b := program.NewBuilder("step")
	args := make([]program.Value, len(o.Update.Inputs))
	for i, in := range o.Update.Inputs {
		args[i] = b.Input(in.Name, in.Type)
	}
	rate := b.Input("rate", program.FloatType())
	x := args[0].Mul(rate.Scale(decay).Neg().Shift(1))
	args[0] = x
	results := b.Inline(o.Update, args...)
	b.Output(sdk.InputX, x.Sub(results[sdk.OutputDirection].Mul(rate)))
	for _, s := range o.State {
		b.Output(sdk.StatePrefix+s.Name, results[sdk.StatePrefix+s.Name])
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
