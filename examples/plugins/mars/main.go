// Command mars is MARS-AdamW (Yuan et al. 2024, "MARS: Unleashing the Power of Variance Reduction
// for Training Large Models", arXiv 2411.10438, Algorithm 2), exact: Adam on a gradient whose
// variance is reduced by the gradient of the same batch at the point before:
//
//	c = g(x) + γ·β1/(1−β1)·(g(x) − g(x₋₁))      both gradients of this batch
//	c ← c / max(1, ‖c‖)                          in each tensor
//	m ← β1·m + (1−β1)·c,   v ← β2·v + (1−β2)·c²
//	u = (m/(1−β1ᵗ)) / (√(v/(1−β2ᵗ)) + ε)
//
// A step costs two gradients. The approximate form, with the gradient of the batch before in place
// of the second one, is in examples/methods. Where the weights decay before the update, x₋₁ is the
// point after the decay; with train.decay = "last" it is exactly the point before.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// mars implements [sdk.Optimizer] and [sdk.Prober].
type mars struct{}

var _ sdk.Prober = mars{}

const (
	stateM    = "m"
	stateV    = "v"
	stateLast = "last" // the point before
)

// Describe declares the parameters, with the paper's defaults.
func (mars) Describe() sdk.Description {
	return sdk.Description{
		Name:    "mars",
		Version: "1.0.0",
		Doc:     "MARS-AdamW (Yuan et al. 2024), exact: Adam with reduced variance.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.95, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.99, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("gamma", 0.025, 0, 1, "how much of the variance is to go"),
			sdk.Float("eps", 1e-8, 1e-15, 1, "added to the root of the second moment"),
		},
	}
}

// Init starts both moments at zero.
func (mars) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...), stateLast: x}, nil
}

// ProbeAt is every update but the first, before which there is no other point.
func (mars) ProbeAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 3, Every: 1} }

// Probe leads back to the point before.
func (mars) Probe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return in.State[stateLast].Sub(in.X), nil
}

// Update writes the program of one step. Where there was no probe, the difference is zero.
func (mars) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	c := in.Gradient.Add(in.Gradient.Sub(in.Probed).Scale(t.Float("gamma") * beta1 / (1 - beta1)))
	c = c.Div(c.Square().SumAll().Sqrt().Max(b.Const(1)))
	m := in.State[stateM].Scale(beta1).Add(c.Scale(1 - beta1))
	v := in.State[stateV].Scale(beta2).Add(c.Square().Scale(1 - beta2))
	u := m.Div(sdk.BiasCorrection(in.Step, beta1)).
		Div(v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt().Shift(t.Float("eps")))
	return u, sdk.State{stateM: m, stateV: v, stateLast: in.X}, nil
}

func main() { sdk.ServeOptimizer(mars{}) }
