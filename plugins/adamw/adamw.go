// Command adamw implements Adam with decoupled weight decay as a plugin (Kingma & Ba 2015;
// Loshchilov & Hutter 2019):
//
//	m ← β1·m + (1−β1)·g
//	v ← β2·v + (1−β2)·g²
//	u = (m/(1−β1ᵗ)) / (√(v/(1−β2ᵗ)) + ε)
//
// The host applies the decay x ← (1 − αω)·x before the update, and the step x ← x − α·u. The
// moments are stored in 32 or 8 bits (moments.go).
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type adamw struct{}

var _ sdk.Compact = adamw{}

// Names of the state tensors.
const (
	stateM = "m"
	stateV = "v"
)

// Values of the moments parameter.
const (
	moments32 = "float32"
	moments8  = "int8"
)

// Describe declares the parameters, with the defaults of the paper's pre-training runs.
func (adamw) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adamw",
		Version: "1.0.0",
		Doc:     "AdamW (Loshchilov & Hutter 2019); decay is set by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
			sdk.Choice("moments", moments32, []string{moments32, moments8},
				"how moments are stored: int8 takes 2.25 bytes instead of 8 for each element of a matrix, "+
					"with a scale for each 32 (FlashOptim, 2026); vectors, and matrices whose row length "+
					"is not a multiple of 32, stay in float32"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimStill}},
	}
}

// Init initializes both moments with zeros.
func (adamw) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	s := sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...)}
	if narrow(t) {
		s[stateMScale], s[stateVScale] = b.Zeros(scales(t.Shape)...), b.Zeros(scales(t.Shape)...)
	}
	return s, nil
}

// Update writes the program for one step. With c1 = 1 − β1ᵗ and c2 = 1 − β2ᵗ the direction is
// computed as m / (√v·(c1/√c2) + ε·c1): the corrections are two scalars, and only one division runs
// over the tensor.
func (adamw) Update(b *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	g, m, v := in.Gradient, in.State[stateM], in.State[stateV]
	if narrow(t) {
		m, v = decode(in.State, t.Shape)
	}
	m = m.Scale(beta1).Add(g.Scale(1 - beta1))
	v = v.Scale(beta2).Add(g.Square().Scale(1 - beta2))

	c1, c2 := sdk.BiasCorrection(in.Step, beta1), sdk.BiasCorrection(in.Step, beta2)
	u := m.Div(v.Sqrt().Mul(c1.Div(c2.Sqrt())).Add(c1.Scale(t.Float("eps"))))
	if narrow(t) {
		return u, encode(m, v), nil
	}
	return u, sdk.State{stateM: m, stateV: v}, nil
}

func main() { sdk.ServeOptimizer(adamw{}) }
