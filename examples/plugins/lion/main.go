// Command lion is Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms",
// Algorithm 2): the sign of an interpolation between momentum and gradient.
//
//	u = sign(β1·m + (1−β1)·g)
//	m ← β2·m + (1−β2)·g
//
// All elements of u are 1 in magnitude: the rate is to be 3 to 10 times smaller than
// AdamW's, and the weight decay as much larger.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// lion implements [sdk.Optimizer].
type lion struct{}

// stateM is the name of the momentum.
const stateM = "m"

// Describe declares the parameters, with the paper's defaults.
func (lion) Describe() sdk.Description {
	return sdk.Description{
		Name:    "lion",
		Version: "1.0.0",
		Doc:     "Lion (Chen et al. 2023): the sign of an interpolated momentum.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "share of the momentum in the direction"),
			sdk.Float("beta2", 0.99, 0, 0.999999, "decay rate of the momentum"),
		},
	}
}

// Init starts the momentum at zero.
func (lion) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...)}, nil
}

// Update writes the program of one step.
func (lion) Update(
	_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	mix := func(beta float64) program.Value {
		return in.State[stateM].Scale(beta).Add(in.Gradient.Scale(1 - beta))
	}
	return mix(t.Float("beta1")).Sign(), sdk.State{stateM: mix(t.Float("beta2"))}, nil
}

func main() { sdk.ServeOptimizer(lion{}) }
