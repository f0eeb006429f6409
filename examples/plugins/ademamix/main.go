// Command ademamix is AdEMAMix (Pagliardini, Ablin & Grangier 2024, "The AdEMAMix Optimizer:
// Better, Faster, Older", Algorithm 1): AdamW with a second, much slower momentum.
//
//	m1 ← β1·m1 + (1−β1)·g
//	m2 ← β3(t)·m2 + (1−β3(t))·g
//	v  ← β2·v + (1−β2)·g²
//	u = (m1/(1−β1ᵗ) + α(t)·m2) / (√(v/(1−β2ᵗ)) + ε)
//
// The slow momentum is not corrected for its start. Its weight and its decay rate grow during
// the first part of the run, with r = min(1, t/(warmup·T)) and T the steps of the run:
//
//	α(t) = α·r
//	β3(t) = exp(ln β1·ln β3 / ((1−r)·ln β3 + r·ln β1))
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// ademamix implements [sdk.Optimizer].
type ademamix struct{}

// The names of the state tensors.
const (
	stateFast = "m1"
	stateSlow = "m2"
	stateV    = "v"
)

// Describe declares the parameters, with the paper's defaults.
func (ademamix) Describe() sdk.Description {
	return sdk.Description{
		Name:    "ademamix",
		Version: "1.0.0",
		Doc:     "AdEMAMix (Pagliardini et al. 2024): AdamW with a fast and a slow momentum.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0.01, 0.999999,
				"decay rate of the fast momentum, and of the slow one at the start"),
			sdk.Float("beta2", 0.999, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("beta3", 0.9999, 0.01, 0.999999, "decay rate of the slow momentum after its warmup"),
			sdk.Float("alpha", 5, 0, 1000, "weight of the slow momentum after its warmup"),
			sdk.Float("warmup", 1, 0, 1, "fraction of the run in which alpha and beta3 grow; 0: they have "+
				"their values from the start"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
		},
	}
}

// Init starts all moments at zero.
func (ademamix) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	zero := b.Zeros(t.Shape...)
	return sdk.State{stateFast: zero, stateSlow: zero, stateV: zero}, nil
}

// Update writes the program of one step.
func (ademamix) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2, g := t.Float("beta1"), t.Float("beta2"), in.Gradient
	alpha, logBeta3 := slow(b, in, t)
	// 1 − β3 as −expm1(ln β3): β3 in binary32 would lose the digits of a small difference.
	beta3, rest3 := logBeta3.Exp(), logBeta3.Expm1().Neg()

	m1 := in.State[stateFast].Scale(beta1).Add(g.Scale(1 - beta1))
	m2 := in.State[stateSlow].Mul(beta3).Add(g.Mul(rest3))
	v := in.State[stateV].Scale(beta2).Add(g.Square().Scale(1 - beta2))
	root := v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt().Shift(t.Float("eps"))
	u := m1.Div(sdk.BiasCorrection(in.Step, beta1)).Add(m2.Mul(alpha)).Div(root)
	return u, sdk.State{stateFast: m1, stateSlow: m2, stateV: v}, nil
}

// slow is the weight of the slow momentum, and the logarithm of its decay rate.
func slow(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (alpha, logBeta3 program.Value) {
	start, end, warmup := math.Log(t.Float("beta1")), math.Log(t.Float("beta3")), t.Float("warmup")
	if warmup == 0 {
		return b.Const(t.Float("alpha")), b.Const(end)
	}
	r := in.Step.Div(in.Steps.Scale(warmup)).Min(b.Const(1))
	// The denominator (1−r)·ln β3 + r·ln β1 is below 0 for every r.
	return r.Scale(t.Float("alpha")), b.Const(start * end).
		Div(b.Const(1).Sub(r).Scale(end).Add(r.Scale(start)))
}

func main() { sdk.ServeOptimizer(ademamix{}) }
