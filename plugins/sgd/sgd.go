// Command sgd implements stochastic gradient descent with momentum as a plugin (Polyak 1964;
// Nesterov 1983 in the form of Sutskever et al. 2013, as in PyTorch):
//
//	buf ← g                               on the first step
//	buf ← μ·buf + (1 − dampening)·g       on later steps
//	u = g (μ = 0),  buf,  or  g + μ·buf   (Nesterov)
//
// Decoupled weight decay and the step x ← x − α·u are applied by the host. Classic L2
// regularization, which adds l2·x to g before anything else, is part of this plugin.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type sgd struct{}

var _ sdk.Optimizer = sgd{}

const stateBuffer = "momentum"

// Describe declares the parameters.
func (sgd) Describe() sdk.Description {
	return sdk.Description{
		Name:    "sgd",
		Version: "1.0.0",
		Doc: "Stochastic gradient descent with momentum, Nesterov's variant and an optional L2 term; " +
			"decoupled decay is set by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Float("momentum", 0, 0, 0.999999,
				"decay rate μ of the momentum buffer; 0: none, and no state"),
			sdk.Float("dampening", 0, 0, 1,
				"fraction of each gradient after the first that is not added to the buffer"),
			sdk.Bool("nesterov", false, "look ahead: u = g + μ·buf"),
			sdk.Float("l2", 0, 0, 1000,
				"adds l2·x to the gradient; set train.weight_decay = 0, or both act"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimStill, When: map[string]any{"l2": 0.0}}},
	}
}

// Init initializes the momentum buffer with zeros; without momentum there is no state.
func (sgd) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	if t.Float("momentum") == 0 {
		return nil, nil
	}
	return sdk.State{stateBuffer: b.Zeros(t.Shape...)}, nil
}

// Update writes the program for one step.
func (sgd) Update(b *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
	mu, dampening := t.Float("momentum"), t.Float("dampening")
	g := in.Gradient
	if l2 := t.Float("l2"); l2 != 0 {
		g = g.Add(in.X.Scale(l2))
	}
	if mu == 0 {
		if t.Bool("nesterov") || dampening != 0 {
			return g, nil, sdk.Refuse("nesterov and dampening need the momentum buffer: " +
				"set momentum above 0")
		}
		return g, nil, nil
	}
	part := g
	if dampening != 0 { // the first gradient is not dampened
		first := in.Step.Le(b.Const(1))
		part = g.Mul(first.Select(b.Const(1), b.Const(1-dampening)))
	}
	buffer := in.State[stateBuffer].Scale(mu).Add(part)
	next := sdk.State{stateBuffer: buffer}
	if t.Bool("nesterov") {
		return g.Add(buffer.Scale(mu)), next, nil
	}
	return buffer, next, nil
}

func main() { sdk.ServeOptimizer(sgd{}) }
