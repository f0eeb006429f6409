// Command opaque-adamw is AdamW as an opaque optimizer: the plugin computes the update itself,
// instead of giving the host a program. This form is for algorithms that cannot be written as
// programs, such as existing C++ code. As a program, AdamW is shorter and faster (plugins/adamw);
// this plugin is an example, and tests compare its training with the program's.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
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
		Claims: []sdk.Claim{{Name: sdk.ClaimStill}},
	}
}

// State has both moments.
func (adamw) State(t sdk.Tensor) ([]spec.Tensor, error) {
	return []spec.Tensor{{Name: stateM, Shape: t.Shape}, {Name: stateV, Shape: t.Shape}}, nil
}

// Step computes one step in the order of the program, with one rounding to binary32 for each
// operation.
func (adamw) Step(in sdk.OpaqueStep, t sdk.Tensor) error {
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	c1, c2 := correction(in.Step, beta1), correction(in.Step, beta2)
	f := factors{
		beta1: float32(beta1), beta2: float32(beta2), rest1: float32(1 - beta1),
		rest2: float32(1 - beta2),
		root:  c1 / float32(math.Sqrt(float64(c2))), eps: c1 * float32(t.Float("eps")),
	}
	f.step(in.Gradient, in.State[stateM], in.State[stateV], in.Next[stateM], in.Next[stateV],
		in.Direction)
	return nil
}

// factors are the scalars of a step.
type factors struct{ beta1, beta2, rest1, rest2, root, eps float32 }

// scalar computes a step element by element.
func (f factors) scalar(g, m, v, nextM, nextV, u []float32) {
	m, v, nextM, nextV, u = m[:len(g)], v[:len(g)], nextM[:len(g)], nextV[:len(g)], u[:len(g)]
	for i, g := range g {
		m := float32(m[i]*f.beta1) + float32(g*f.rest1)
		v := float32(v[i]*f.beta2) + float32(float32(g*g)*f.rest2)
		nextM[i], nextV[i] = m, v
		u[i] = m / (float32(float32(math.Sqrt(float64(v)))*f.root) + f.eps)
	}
}

// correction is 1 − βᵗ, as plugins/adamw has it.
func correction(step int, beta float64) float32 {
	if beta == 0 {
		return 1
	}
	return float32(-math.Expm1(float64(float32(step) * float32(math.Log(beta)))))
}

func main() { sdk.ServeOpaqueOptimizer(adamw{}) }
