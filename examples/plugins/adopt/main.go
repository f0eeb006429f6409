// Command adopt is ADOPT (Taniguchi et al. 2024, "ADOPT: Modified Adam Can Converge with Any β2
// with the Optimal Rate", Algorithm 2): Adam whose second moment does not contain the present
// gradient, and which normalizes the gradient before the momentum.
//
//	m ← β1·m + (1−β1)·clip(g / max(√v, ε), ±(t−1)^¼)
//	v ← β2·v + (1−β2)·g²
//	u = m
//
// The first update, t = 1, only begins v with g².
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// adopt implements [sdk.Optimizer].
type adopt struct{}

// The names of the state tensors.
const (
	stateM = "m"
	stateV = "v"
)

// Describe declares the parameters, with the paper's defaults.
func (adopt) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adopt",
		Version: "1.0.0",
		Doc:     "ADOPT (Taniguchi et al. 2024), with clipping: Adam that converges with any β2.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the momentum"),
			sdk.Float("beta2", 0.9999, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-6, 1e-15, 1, "least divisor of the gradient"),
		},
	}
}

// Init starts both moments at zero.
func (adopt) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...)}, nil
}

// Update writes the program of one step. At t = 1 the bound of clipping is 0, so that m stays at
// zero.
func (adopt) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	g, v := in.Gradient, in.State[stateV]
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	bound := in.Step.Shift(-1).Sqrt().Sqrt()
	normal := g.Div(v.Sqrt().Max(b.Const(t.Float("eps")))).Clamp(bound.Neg(), bound)
	m := in.State[stateM].Scale(beta1).Add(normal.Scale(1 - beta1))
	first := in.Step.Le(b.Const(1))
	keep, take := first.Select(b.Const(0), b.Const(beta2)), first.Select(b.Const(1), b.Const(1-beta2))
	return m, sdk.State{stateM: m, stateV: v.Mul(keep).Add(g.Square().Mul(take))}, nil
}

func main() { sdk.ServeOptimizer(adopt{}) }
