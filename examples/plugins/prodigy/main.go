// Command prodigy is Prodigy (Mishchenko & Defazio 2023, "Prodigy: An Expeditiously Adaptive
// Parameter-Free Learner", Algorithm 4): Adam that estimates its rate. d is a lower bound of the
// distance from the start to a solution, over all tensors together, and grows:
//
//	a = d·α·√(1−β2ᵗ)/(1−β1ᵗ)                      the rate of the update
//	m ← β1·m + (1−β1)·d·g
//	v ← β2·v + (1−β2)·d²·g²
//	s ← √β2·s + a·d·g/d0
//	r ← √β2·r + (d/d0)·a·Σ ⟨g, x0 − x⟩            Σ over all tensors
//	d ← max(d, growth·r / Σ ‖s‖₁)
//	u = m/(√v + d·ε)
//
// α is the host's schedule, which is to begin at 1. Every tensor has its own copy of d and r: they
// are computed from the same sums. Weight decay and correction use the rate a.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// prodigy implements [sdk.Optimizer], [sdk.Pacer] and [sdk.Collector].
type prodigy struct{}

var (
	_ sdk.Pacer     = prodigy{}
	_ sdk.Collector = prodigy{}
)

// The names of the state tensors.
const (
	stateM         = "m"
	stateV         = "v"
	stateSum       = "s"  // weighted sum of the gradients
	stateStart     = "x0" // x at the start
	stateDistance  = "d"
	stateNumerator = "r"
)

// The names of what is collected.
const (
	globalAlong  = "along"  // ⟨g, x0 − x⟩
	globalLength = "length" // ‖s‖₁
)

// Describe declares the parameters, with the paper's defaults.
func (prodigy) Describe() sdk.Description {
	return sdk.Description{
		Name:    "prodigy",
		Version: "1.0.0",
		Doc: "Prodigy (Mishchenko & Defazio 2023): Adam that estimates its rate; schedule.rate is " +
			"to be 1.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.999, 0.01, 0.999999,
				"decay rate of the second moment; that of the estimate is its root"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added, times d, to the root of the second moment"),
			sdk.Float("d0", 1e-6, 1e-9, 1, "first estimate of d, which is to be too small"),
			sdk.Float("growth", 1, 0.01, 100, "factor on the estimates of d"),
		},
	}
}

// Init starts everything at zero, except d.
func (prodigy) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	zero := b.Zeros(t.Shape...)
	return sdk.State{stateM: zero, stateV: zero, stateSum: zero, stateStart: x,
		stateDistance: b.Const(t.Float("d0")), stateNumerator: b.Const(0)}, nil
}

// Rate writes a.
func (prodigy) Rate(_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, error) {
	return rate(in, t), nil
}

func rate(in sdk.UpdateInput, t sdk.Tensor) program.Value {
	of := func(beta string) program.Value { return sdk.BiasCorrection(in.Step, t.Float(beta)) }
	return in.State[stateDistance].Mul(in.Rate).Mul(of("beta2").Sqrt().Div(of("beta1")))
}

// sum is the next s.
func sum(in sdk.UpdateInput, t sdk.Tensor) program.Value {
	step := rate(in, t).Mul(in.State[stateDistance]).Scale(1 / t.Float("d0"))
	return in.State[stateSum].Scale(math.Sqrt(t.Float("beta2"))).Add(in.Gradient.Mul(step))
}

// Collect writes the two sums over all elements.
func (prodigy) Collect(_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{
		globalAlong:  in.Gradient.Mul(in.State[stateStart].Sub(in.X)).SumAll(),
		globalLength: sum(in, t).Abs().SumAll(),
	}, nil
}

// Update writes the program of one step.
func (prodigy) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2, d := t.Float("beta1"), t.Float("beta2"), in.State[stateDistance]
	g := in.Gradient.Mul(d)
	m := in.State[stateM].Scale(beta1).Add(g.Scale(1 - beta1))
	v := in.State[stateV].Scale(beta2).Add(g.Square().Scale(1 - beta2))

	along := d.Scale(1 / t.Float("d0")).Mul(rate(in, t)).Mul(in.Global[globalAlong])
	r := in.State[stateNumerator].Scale(math.Sqrt(beta2)).Add(along)
	length := in.Global[globalLength]
	some := length.Gt(b.Const(0)) // there has been a gradient, and a rate
	estimate := some.Select(r.Scale(t.Float("growth")).Div(some.Select(length, b.Const(1))),
		b.Const(0))
	larger := d.Max(estimate)

	u := m.Div(v.Sqrt().Add(larger.Scale(t.Float("eps"))))
	return u, sdk.State{stateM: m, stateV: v, stateSum: sum(in, t), stateStart: in.State[stateStart],
		stateDistance: larger, stateNumerator: r}, nil
}

func main() { sdk.ServeOptimizer(prodigy{}) }
