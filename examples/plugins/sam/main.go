// Command sam is sharpness-aware minimization (Foret et al. 2020, "Sharpness-Aware Minimization for
// Efficiently Improving Generalization", arXiv 2010.01412, Algorithm 1) with momentum: each step
// follows the gradient at the point of the neighbourhood where the loss is largest, to first order:
//
//	p = ρ·g(x)/‖g(x)‖          the norm is over all tensors
//	m ← μ·m + g(x + p)
//	u = m
//
// A step costs two gradients.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// sam implements [sdk.Optimizer], [sdk.Collector] and [sdk.Prober].
type sam struct{}

var (
	_ sdk.Collector = sam{}
	_ sdk.Prober    = sam{}
)

const (
	stateM      = "m"
	globalNorm2 = "norm2" // of the gradient
)

// Describe declares the parameters, with the paper's defaults.
func (sam) Describe() sdk.Description {
	return sdk.Description{
		Name:    "sam",
		Version: "1.0.0",
		Doc:     "Sharpness-aware minimization (Foret et al. 2020) with momentum.",
		Parameters: []sdk.Parameter{
			sdk.Float("rho", 0.05, 0, 100, "length of the offset, over all tensors together"),
			sdk.Float("momentum", 0.9, 0, 0.999999, "decay rate of the momentum"),
		},
	}
}

// Init starts the momentum at zero.
func (sam) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...)}, nil
}

// Collect writes the sum of squares of the gradient.
func (sam) Collect(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{globalNorm2: in.Gradient.Square().SumAll()}, nil
}

// ProbeAt is every update.
func (sam) ProbeAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 2, Every: 1} }

// Probe writes the program of the step along the gradient, uphill. If the gradient is zero, so is
// the step.
func (sam) Probe(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, error) {
	norm := in.Global[globalNorm2].Sqrt().Max(b.Const(1e-12))
	return in.Gradient.Mul(b.Const(t.Float("rho")).Div(norm)), nil
}

// Update writes the program of one step.
func (sam) Update(
	_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State[stateM].Scale(t.Float("momentum")).Add(in.Probed)
	return m, sdk.State{stateM: m}, nil
}

func main() { sdk.ServeOptimizer(sam{}) }
