// Command schedule-free is schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled",
// Algorithm 1): AdamW without a decreasing rate. In place of a momentum it interpolates between the
// point z of the steps and their average x, and takes gradients there, at y:
//
//	y_t     = (1−β1)·z_t + β1·x_t
//	z_{t+1} = z_t − α_t·ĝ               with ĝ = g / (√(v/(1−β2ᵗ)) + ε) at y_t
//	x_{t+1} = (1−c)·x_t + c·z_{t+1}     with c = w_t/Σ w and w_t = (max α)^power
//
// The host trains y, and evaluates x = y + (1/β1 − 1)·(y − z). Use a constant rate after a warmup.
// What else the host does to y, weight decay and correction, reaches x by a factor 1/β1, and z not
// at all; the authors' weight decay also moves z.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// scheduleFree implements [sdk.Optimizer] and [sdk.Averaged].
type scheduleFree struct{}

var _ sdk.Averaged = scheduleFree{}

// The names of the state tensors: z, the second moment, the sum of the weights, and the largest
// rate.
const (
	stateZ       = "z"
	stateV       = "v"
	stateSum     = "weight_sum"
	stateLargest = "largest_rate"
)

// Describe declares the parameters, with the defaults of the authors' code.
func (scheduleFree) Describe() sdk.Description {
	return sdk.Description{
		Name:    "schedule-free",
		Version: "1.0.0",
		Doc:     "Schedule-free AdamW (Defazio et al. 2024): evaluated at an average of the path.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0.01, 0.9999,
				"interpolation between the steps' point and their average, where gradients are taken"),
			sdk.Float("beta2", 0.999, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
			sdk.Float("weight_power", 2, 0, 10, "power of the rate in the weights of the average"),
		},
	}
}

// Init starts everywhere at x.
func (scheduleFree) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateZ: x, stateV: b.Zeros(t.Shape...), stateSum: b.Const(0),
		stateLargest: b.Const(0)}, nil
}

// Update writes the program of one step. The host goes to y − α·u, which is y_{t+1} for
//
//	α·u = c·(y − z) + α·(1 − β1·(1−c))·ĝ
func (scheduleFree) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	zero, one := b.Const(0), b.Const(1)
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	v := in.State[stateV].Scale(beta2).Add(in.Gradient.Square().Scale(1 - beta2))
	root := v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt()
	direction := in.Gradient.Div(root.Shift(t.Float("eps")))

	// As long as all rates have been 0 there is nothing to average.
	largest := in.State[stateLargest].Max(in.Rate)
	moving := largest.Gt(zero)
	weight := moving.Select(largest.Pow(b.Const(t.Float("weight_power"))), zero)
	sum := in.State[stateSum].Add(weight)
	c := moving.Select(weight.Div(moving.Select(sum, one)), zero)

	// With a rate of 0 the host cannot move y.
	steps := in.Rate.Gt(zero)
	pull := steps.Select(c.Div(steps.Select(in.Rate, one)), zero)
	z := in.State[stateZ]
	u := in.X.Sub(z).Mul(pull).Add(direction.Mul(one.Sub(one.Sub(c).Scale(beta1))))
	next := sdk.State{stateZ: z.Sub(direction.Mul(in.Rate)), stateV: v, stateSum: sum,
		stateLargest: largest}
	return u, next, nil
}

// Evaluate writes x.
func (scheduleFree) Evaluate(
	_ *program.Builder, y program.Value, state sdk.State, t sdk.Tensor,
) (program.Value, error) {
	return y.Add(y.Sub(state[stateZ]).Scale(1/t.Float("beta1") - 1)), nil
}

func main() { sdk.ServeOptimizer(scheduleFree{}) }
