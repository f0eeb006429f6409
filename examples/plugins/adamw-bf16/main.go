// Command adamw-bf16 is AdamW in pure bfloat16: the weights and both moments have 8 significant
// bits, and are rounded at random, so that what is smaller than the distance of two numbers is not
// lost in every update (Zamirai et al. 2020, "Revisiting BFloat16 Training", arXiv 2010.06192, §4;
// Ozkara et al. 2025, "Stochastic Rounding for LLM Training", arXiv 2502.20566):
//
//	m ← SR(β1·m + (1−β1)·g)
//	v ← SR(β2·v + (1−β2)·g²)
//	u = (m/(1−β1ᵗ)) / (√(v/(1−β2ᵗ)) + ε)
//	x ← SR(x − α·u)                         by the host
//
// u is that of the moments before they are rounded. The moments take 4 bytes per element in place
// of 8. The host keeps the weights in 4 bytes still, but all of their values are those of bfloat16.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// adamw implements [sdk.Optimizer], [sdk.Compact] and [sdk.Rounded].
type adamw struct{}

var (
	_ sdk.Compact = adamw{}
	_ sdk.Rounded = adamw{}
)

// The names of the state tensors.
const (
	stateM = "m"
	stateV = "v"
)

// Describe declares the parameters.
func (adamw) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adamw-bf16",
		Version: "1.0.0",
		Doc:     "AdamW in bfloat16 with stochastic rounding (Zamirai et al. 2020).",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
			sdk.Bool("round_weights", true, "whether weights are rounded, too, and not the moments only"),
		},
	}
}

// Storage implements [sdk.Compact].
func (adamw) Storage(sdk.Tensor) map[string]sdk.Storage {
	return map[string]sdk.Storage{stateM: sdk.StoreBFloat16, stateV: sdk.StoreBFloat16}
}

// RoundTo implements [sdk.Rounded].
func (adamw) RoundTo(t sdk.Tensor) sdk.Storage {
	if t.Bool("round_weights") {
		return sdk.StoreBFloat16
	}
	return sdk.StoreFloat32
}

// Init starts both moments at zero.
func (adamw) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...)}, nil
}

// Update writes the program of one step. Of the 32 random bits of an element, the upper half is for
// m and the lower one for v.
func (adamw) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	m := in.State[stateM].Scale(beta1).Add(in.Gradient.Scale(1 - beta1))
	v := in.State[stateV].Scale(beta2).Add(in.Gradient.Square().Scale(1 - beta2))
	u := m.Div(sdk.BiasCorrection(in.Step, beta1)).
		Div(v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt().Shift(t.Float("eps")))
	bits := b.RandomBits(in.Noise, t.Shape...)
	next := sdk.State{stateM: m.StochasticBFloat16(bits),
		stateV: v.StochasticBFloat16(bits.Shl(b.ConstUint(16)))}
	return u, next, nil
}

func main() { sdk.ServeOptimizer(adamw{}) }
