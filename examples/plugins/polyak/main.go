// Command polyak is gradient descent with Polyak's step size, bounded by the schedule (Loizou et
// al. 2021, "Stochastic Polyak Step-size for SGD", SPS_max):
//
//	u = g
//	rate = min((loss − floor) / (c·‖g‖²), α)
//
// The norm is that of the gradient of all tensors together. floor is the least loss that can be
// reached, and α is the host's schedule.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// polyak implements [sdk.Optimizer], [sdk.Pacer] and [sdk.Collector].
type polyak struct{}

var (
	_ sdk.Pacer     = polyak{}
	_ sdk.Collector = polyak{}
)

// globalNorm2 is the name of the squared norm of the gradient.
const globalNorm2 = "norm2"

// Describe declares the parameters.
func (polyak) Describe() sdk.Description {
	return sdk.Description{
		Name:    "polyak",
		Version: "1.0.0",
		Doc:     "Gradient descent with Polyak's step size (Loizou et al. 2021); the schedule bounds it.",
		Parameters: []sdk.Parameter{
			sdk.Float("c", 1, 0.01, 1e6, "divisor of the step size"),
			sdk.Float("floor", 0, -1e30, 1e30, "least loss"),
		},
	}
}

// Init has no state.
func (polyak) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

// Collect writes the tensor's part of the squared norm.
func (polyak) Collect(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{globalNorm2: in.Gradient.Square().SumAll()}, nil
}

// Rate writes Polyak's step size.
func (polyak) Rate(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, error) {
	const smallest = 1e-30 // without a gradient the schedule decides
	above := in.Loss.Shift(-t.Float("floor")).Max(b.Const(0))
	return above.Div(in.Global[globalNorm2].Scale(t.Float("c")).Max(b.Const(smallest))).Min(in.Rate),
		nil
}

// Update steps along the gradient.
func (polyak) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}

func main() { sdk.ServeOptimizer(polyak{}) }
