package plugintest

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
)

// Trajectory is what an optimizer is driven through: a start, and for each step a
// gradient (the first axis of Gradients) and a learning rate.
type Trajectory struct {
	Start     golden.Tensor
	Gradients golden.Tensor
	Rates     []float64
	// Decay is the coefficient ω of decoupled weight decay, the host's part.
	Decay float64
	// DecayLast applies it after the step and not, as a host does, before it.
	DecayLast bool
}

// Optimize drives o through tr in the order of the CAGE paper's Algorithm 1, as a
// host does: x ← (1 − αω)·x, then u from the optimizer, then x ← x − α·u. It
// returns the parameters after each step, one after the other.
func (m Machine) Optimize(t testing.TB, o sdk.Optimizer, given map[string]any, tr Trajectory) []float64 {
	t.Helper()
	run := m.Train(t, o, given, sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: tr.Start.Shape}, tr.Start.Data)
	run.Decay, run.DecayLast = tr.Decay, tr.DecayLast
	var trace []float64
	for i, rate := range tr.Rates {
		run.Update(t, tr.Gradients.Row(i).Data, rate)
		trace = append(trace, run.X()...)
	}
	return trace
}
