// Command adahessian is AdaHessian (Yao et al. 2020, "ADAHESSIAN: An Adaptive Second Order
// Optimizer for Machine Learning", arXiv 2006.00719, Algorithm 1): Adam with the diagonal of the
// Hessian instead of the gradient in the second moment:
//
//	d = z ⊙ (H·z)     z random, −1 or 1 (Hutchinson); without a new estimate, the last one
//	d ← mean of d over each block of a matrix's row
//	m ← β1·m + (1−β1)·g
//	v ← β2·v + (1−β2)·d²
//	u = (m/(1−β1ᵗ)) / (√(v/(1−β2ᵗ))ᵏ + ε)
//
// The product H·z is the difference of the gradients at x + p·z and at x, divided by p. For a small
// Llama its relative error is 0.1 % for p = 1e-4 in float32, and 13 % for p = 1e-2 in bfloat16,
// which wants no smaller p (host/model/products_test.go). ε is that of the authors' code.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// adahessian implements [sdk.Optimizer] and [sdk.Prober].
type adahessian struct{}

var _ sdk.Prober = adahessian{}

// The names of the state tensors: the moments, and the last estimate.
const (
	stateM = "m"
	stateV = "v"
	stateD = "d"
)

// Describe declares the parameters, with the paper's defaults.
func (adahessian) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adahessian",
		Version: "1.0.0",
		Doc: "AdaHessian (Yao et al. 2020): Adam with the diagonal of the Hessian in the second " +
			"moment.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.999, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("power", 1, 0.01, 1, "k: the Hessian's power"),
			sdk.Float("eps", 1e-4, 1e-15, 1, "added to the root of the second moment"),
			sdk.Int("block", 32, 1, 1<<20, "elements of a matrix's row that share a mean; where rows do "+
				"not divide, the greatest common divisor"),
			sdk.Int("every", 1, 1, 1<<20, "updates between two estimates"),
			sdk.Float("probe", 1e-4, 1e-6, 1,
				"distance at which the second gradient is taken, in each element; 1e-2 for bfloat16"),
		},
	}
}

// Init starts everything at zero.
func (adahessian) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	state := sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...)}
	if t.Int("every") > 1 {
		state[stateD] = b.Zeros(t.Shape...)
	}
	return state, nil
}

// ProbeAt is every few updates, from the first on.
func (adahessian) ProbeAt(t sdk.Tensor) sdk.Due {
	return sdk.Due{First: 1, Next: 1, Every: t.Int("every")}
}

// Probe writes p·z.
func (adahessian) Probe(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, error) {
	return signs(b, in, t).Scale(t.Float("probe")), nil
}

// signs is z, the same in both methods of a step.
func signs(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) program.Value {
	return b.RandomBits(in.Noise, t.Shape...).And(b.ConstUint(1)).Convert(program.Float).Scale(2).
		Shift(-1)
}

// Update writes the program of one step.
func (adahessian) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	product := in.Probed.Sub(in.Gradient).Scale(1 / t.Float("probe"))
	d := blockMeans(signs(b, in, t).Mul(product), t)
	state := sdk.State{}
	if t.Int("every") > 1 {
		d = in.Probing.Gt(b.Const(0)).Select(d, in.State[stateD])
		state[stateD] = d
	}
	m := in.State[stateM].Scale(beta1).Add(in.Gradient.Scale(1 - beta1))
	v := in.State[stateV].Scale(beta2).Add(d.Square().Scale(1 - beta2))
	state[stateM], state[stateV] = m, v
	root := v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt()
	if k := t.Float("power"); k != 1 {
		root = root.Log().Scale(k).Exp()
	}
	return m.Div(sdk.BiasCorrection(in.Step, beta1)).Div(root.Shift(t.Float("eps"))), state, nil
}

// blockMeans returns, for each element, the mean of its block. Vectors stay as they are.
func blockMeans(d program.Value, t sdk.Tensor) program.Value {
	rank := len(t.Shape)
	if rank < 2 {
		return d
	}
	size := commonDivisor(t.Int("block"), t.Shape[rank-1])
	if size == 1 {
		return d
	}
	n := int(d.Type().Size()) / size
	return d.Reshape(n, size).MeanRow().Broadcast([]int{n, size}, []int{0, 1}).Reshape(t.Shape...)
}

func commonDivisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

func main() { sdk.ServeOptimizer(adahessian{}) }
