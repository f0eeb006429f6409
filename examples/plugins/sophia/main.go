// Command sophia is Sophia-H or Sophia-G (Liu et al. 2023, "Sophia: A Scalable Stochastic
// Second-order Optimizer for Language Model Pre-training", arXiv 2305.14342, Algorithm 3):
// momentum, divided by an estimate of the diagonal of the Hessian that is made every few updates,
// and clipped element by element:
//
//	m ← β1·m + (1−β1)·g
//	h ← β2·h + (1−β2)·ĥ             every k updates
//	u = clip(m / max(γ·h, ε), ±1)
//
// Sophia-G (estimator = "gnb", Algorithm 2) has ĥ = n·ĝ ⊙ ĝ, with ĝ the gradient for n labels that
// are drawn from the model's predictions: the diagonal of the Gauss-Newton matrix. The paper has γ
// = 0.05 for it.
//
// Sophia-H (estimator = "hutchinson", Algorithm 1) has ĥ = v ⊙ (H·v), with v random. The product
// H·v is the difference of the gradients at x + p·v and at x, divided by p. It is exact where the
// gradient is linear. v is −1 or 1, as AdaHessian has it, where the paper draws from a normal
// distribution: the mean is the same, and the variance less. Where weights are quantized, the
// gradient changes in steps, and the mean over steps of the grid takes the place of the derivative:
// p should then not be much smaller than a step.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// sophia implements [sdk.Optimizer], [sdk.Prober] and [sdk.Sampler].
type sophia struct{}

var (
	_ sdk.Prober  = sophia{}
	_ sdk.Sampler = sophia{}
)

// What the setting estimator can be.
const (
	hutchinson = "hutchinson"
	gnb        = "gnb"
)

const (
	stateM = "m"
	stateH = "h"
)

// Describe declares the parameters, with the paper's defaults.
func (sophia) Describe() sdk.Description {
	return sdk.Description{
		Name:    "sophia",
		Version: "1.1.0",
		Doc: "Sophia (Liu et al. 2023): momentum over an estimate of the diagonal of the Hessian, " +
			"clipped.",
		Parameters: []sdk.Parameter{
			sdk.Choice("estimator", hutchinson, []string{hutchinson, gnb},
				"of the diagonal: hutchinson for Sophia-H, gnb for Sophia-G"),
			sdk.Float("beta1", 0.96, 0, 0.999999, "decay rate of the momentum"),
			sdk.Float("beta2", 0.99, 0, 0.999999, "decay rate of the estimate"),
			sdk.Float("gamma", 0.01, 1e-6, 1e3,
				"factor on the estimate: the larger, the more elements are not clipped"),
			sdk.Float("eps", 1e-12, 1e-15, 1, "least divisor of the momentum"),
			sdk.Int("every", 10, 1, 1<<20, "updates between two estimates"),
			sdk.Float("probe", 1e-3, 1e-6, 1,
				"hutchinson: distance at which the second gradient is taken, in each element"),
		},
	}
}

// Init starts momentum and estimate at zero.
func (sophia) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...), stateH: b.Zeros(t.Shape...)}, nil
}

// ProbeAt is every k updates, from the first on, for Sophia-H.
func (sophia) ProbeAt(t sdk.Tensor) sdk.Due { return estimates(t, hutchinson) }

// SampleAt is the same for Sophia-G.
func (sophia) SampleAt(t sdk.Tensor) sdk.Due { return estimates(t, gnb) }

// estimates says when an estimator is asked.
func estimates(t sdk.Tensor, estimator string) sdk.Due {
	if t.Text("estimator") != estimator {
		return sdk.Due{}
	}
	return sdk.Due{First: 1, Next: 1, Every: t.Int("every")}
}

// Probe writes p·v.
func (sophia) Probe(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, error) {
	return signs(b, in, t).Scale(t.Float("probe")), nil
}

// signs is v, the same in both methods of a step.
func signs(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) program.Value {
	return b.RandomBits(in.Noise, t.Shape...).And(b.ConstUint(1)).Convert(program.Float).Scale(2).
		Shift(-1)
}

// Update writes the program of one step.
func (sophia) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	m := in.State[stateM].Scale(beta1).Add(in.Gradient.Scale(1 - beta1))
	h := in.State[stateH].Scale(beta2).Add(estimate(b, in, t).Scale(1 - beta2))
	h = in.Probing.Gt(b.Const(0)).Select(h, in.State[stateH])
	u := m.Div(h.Scale(t.Float("gamma")).Max(b.Const(t.Float("eps")))).Clip(-1, 1)
	return u, sdk.State{stateM: m, stateH: h}, nil
}

// estimate is ĥ. The host has multiplied the gradient for drawn labels by √n.
func estimate(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) program.Value {
	if t.Text("estimator") == gnb {
		return in.Probed.Square()
	}
	return signs(b, in, t).Mul(in.Probed.Sub(in.Gradient).Scale(1 / t.Float("probe")))
}

func main() { sdk.ServeOptimizer(sophia{}) }
