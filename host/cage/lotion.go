package cage

import (
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// LOTION trains in full precision on a loss that is smoothed by randomized rounding of the weights
// ("Smoothing the Optimization Landscape for Quantized Training", Kwun et al. 2025, arXiv
// 2510.08757). The CAGE paper compares it with CAGE ("Relationship to LOTION", "Comparison to
// LOTION").
//
// To second order the smoothed loss is the loss plus a regularizer R, the variance of the rounding
// weighted by the curvature. R is as in the CAGE authors' code. Here s is the step size of a
// weight tensor's grid, treated as a constant in the gradient, and F the moving average of squared
// gradients, an estimate of the diagonal of the Fisher matrix that approximates the curvature:
//
//	s   = max|x| / steps
//	Δ_i = x_i/s − ⌊x_i/s⌋
//	σ²_i = s²·Δ_i·(1 − Δ_i)             variance of unbiased randomized rounding
//	R   = ½·coeff·Σ F_i·σ²_i            added to the loss
//	∂R/∂x_i = ½·coeff·F_i·s·(1 − 2Δ_i)
//	F   ← fisher_decay·F + (1 − fisher_decay)·g²
//
// F is initialized with zeros, without bias correction. On the grid, at Δ = 0, R has a kink, where
// the formula gives the right-hand derivative.
type LOTION struct {
	None
	Coeff       float64 // strength of the regularizer, ≥ 0
	FisherDecay float64 // of F, in [0, 1)
	Bits        int     // of the grid
	// Denom selects the number of steps of the grid up to the largest magnitude of a tensor:
	// 2^(bits−1) with "power", as in the CAGE authors' code; one less with "symmetric", the integer
	// grid of the LOTION paper.
	Denom string
}

// DefaultLOTION is the setting used in the CAGE paper's comparison with 4-bit weights:
// the best strength of its sweep, and the constants of the authors' code.
var DefaultLOTION = LOTION{Coeff: 4000, FisherDecay: 0.999, Bits: 4, Denom: "power"}

func (m *LOTION) keys() []schema.Key {
	of := []string{NameLOTION}
	return []schema.Key{
		{Name: "coeff", To: &m.Coeff, Is: schema.Between(0, 1e12), For: of, Default: DefaultLOTION.Coeff,
			Doc: "strength of the regularizer ½·coeff·Σ F·σ²; 0: none. " +
				"The default is the best value in the CAGE paper's comparison"},
		{Name: "fisher_decay", To: &m.FisherDecay, Is: schema.Below(0, 1), For: of,
			Default: DefaultLOTION.FisherDecay,
			Doc:     "decay of F, the moving average of squared gradients, which is not bias-corrected"},
		{Name: "bits", To: &m.Bits, Is: schema.From(2, 16), For: of, Default: DefaultLOTION.Bits,
			Doc: "bits of the regularizer's grid, usually equal to those of the weight quantizer"},
		{Name: "denom", To: &m.Denom, Is: schema.OneOf("power", "symmetric"), For: of,
			Default: DefaultLOTION.Denom,
			Doc: "the grid's step is the largest magnitude of the tensor over 2^(bits−1) " +
				"(power, as in the CAGE paper's comparison), or over 2^(bits−1) − 1 " +
				"(symmetric, the integer grid of the LOTION paper)"},
	}
}

const smoothing Mode = "lotion"

// Modes returns the mode with the regularizer.
func (LOTION) Modes() []Mode { return []Mode{smoothing} }

// Mode always returns the mode with the regularizer.
func (LOTION) Mode(At) Mode { return smoothing }

// FullPrecision returns true: the loss is computed at x.
func (LOTION) FullPrecision() bool { return true }

const fisherState = "lotion.fisher"

// State returns F, which has the shape of the weight.
func (LOTION) State(shape []int) []spec.Tensor {
	return []spec.Tensor{{Name: fisherState, Shape: shape}}
}

func (m LOTION) steps() float64 {
	steps := float64(int64(1) << (m.Bits - 1))
	if m.Denom == "symmetric" {
		steps--
	}
	return steps
}

// gradient returns g + ∂R/∂x at x, before weight decay.
//
// R uses the previous F, which is then updated with the gradient of the task alone, after clipping.
// The order in the authors' training loop is not known (their code is public only as a class
// without the loop that calls it); F might also use unclipped gradients, or gradients that include
// the regularizer. In this order, nothing that LOTION adds enters its own estimate of curvature,
// and the regularizer itself is never clipped.
//
// A tensor of zeros has no regularizer. A tensor with a NaN or ±Inf gives a gradient with NaN; its
// loss is not finite either, and the step is skipped. If Coeff is 0, the gradient is bitwise equal
// to g.
func (m LOTION) gradient(s *writer, g program.Value) program.Value {
	step, delta := m.cells(s.b, s.x)
	f := s.state[fisherState]
	s.state[fisherState] = f.Scale(m.FisherDecay).Add(g.Square().Scale(1 - m.FisherDecay))
	if m.Coeff == 0 {
		return g
	}
	slope := s.b.Const(0.5).Sub(delta).Mul(step.Scale(m.Coeff)) // ½·Coeff·s·(1 − 2Δ)
	return g.Add(f.Mul(slope))
}

// cells returns the step size s of the grid, and Δ. It computes x/max|x| first, so that the largest
// weight, which is always on the grid, stays on it in any precision. With x/s it could fall just
// below, where the derivative has the opposite sign.
func (m LOTION) cells(b *program.Builder, x program.Value) (step, delta program.Value) {
	amax := x.Abs().MaxAll()
	step = amax.Scale(1 / m.steps())
	r := x.Div(amax.Max(b.Const(smallest))).Scale(m.steps())
	return step, r.Sub(r.Floor())
}

// smallest is the smallest normal binary32 number. It replaces the maximum of a tensor of zeros.
const smallest = 0x1p-126
