// Command opaque-adamw is AdamW as an optimizer that computes by itself, in the place of a program: the form for algorithms that
// cannot be programs, such as somebody's C++. AdamW can be one, and as one, plugins/adamw, it is shorter and faster; here it shows
// what such a plugin looks like, and tests hold its training to the program's.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
)

// adamw implements [sdk.OpaqueOptimizer].
type adamw struct{}

// The names of the state tensors.
const (
	stateM = "m"
	stateV = "v"
)

// Describe declares the parameters of plugins/adamw.
func (adamw) Describe() sdk.Description {
	return sdk.Description{
		Name:    "opaque-adamw",
		Version: "1.0.0",
		Doc:     "AdamW (Loshchilov & Hutter 2019), computed by the plugin itself.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
		},
	}
}

// State has both moments.
func (adamw) State(t sdk.Tensor) ([]sdk.StateTensor, error) {
	return []sdk.StateTensor{{Name: stateM, Shape: t.Shape}, {Name: stateV, Shape: t.Shape}}, nil
}

// Step computes one step in the order of the program, with one rounding to binary32 for each operation.
func (adamw) Step(in sdk.OpaqueStep, t sdk.Tensor) error {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	c1, c2 := correction(in.Step, beta1), correction(in.Step, beta2)
	root, eps := c1/float32(math.Sqrt(float64(c2))), c1*float32(t.Float("eps"))
	b1, b2, d1, d2 := float32(beta1), float32(beta2), float32(1-beta1), float32(1-beta2)

	g := in.Gradient
	m, v := in.State[stateM][:len(g)], in.State[stateV][:len(g)]
	nextM, nextV, u := in.Next[stateM][:len(g)], in.Next[stateV][:len(g)], in.Direction[:len(g)]
	for i, g := range g {
		m := float32(m[i]*b1) + float32(g*d1)
		v := float32(v[i]*b2) + float32(float32(g*g)*d2)
		nextM[i], nextV[i] = m, v
		u[i] = m / (float32(float32(math.Sqrt(float64(v)))*root) + eps)
	}
	return nil
}

// correction is 1 − βᵗ, as plugins/adamw has it.
func correction(step int, beta float64) float32 {
	if beta == 0 {
		return 1
	}
	return float32(-math.Expm1(float64(float32(step) * float32(math.Log(beta)))))
}

func main() { sdk.ServeOpaqueOptimizer(adamw{}) }
