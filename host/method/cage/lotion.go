package cage

import (
	"github.com/cage-qat/cage/sdk/program"
)

// Lotion is the configuration of LOTION for a run ("Smoothing the Optimization Landscape
// for Quantized Training", Kwun et al. 2025, arXiv 2510.08757), the method with which the
// CAGE paper compares its own ("Relationship to LOTION", "Comparison to LOTION"):
// training in full precision on a loss that is smoothed by randomized rounding of the
// weights.
//
// To second order the smoothed loss is the loss plus a regularizer R, the variance of the
// rounding weighted by the curvature. R is implemented as by the CAGE authors. Here s is
// the step of a weight tensor's grid, which counts as a constant in the gradient, and F
// the moving average of squared gradients, which stands for the curvature (it is an
// estimate of the diagonal of the Fisher matrix):
//
//	s   = max|x| / Denominator
//	Δ_i = x_i/s − ⌊x_i/s⌋
//	σ²_i = s²·Δ_i·(1 − Δ_i)             variance of unbiased randomized rounding
//	R   = ½·Coeff·Σ F_i·σ²_i            added to the loss
//	∂R/∂x_i = ½·Coeff·F_i·s·(1 − 2Δ_i)
//	F   ← FisherDecay·F + (1 − FisherDecay)·g²
//
// F starts at zero and has no bias correction. On the grid, Δ = 0, where R has a kink,
// the formula gives the derivative to the right.
type Lotion struct {
	// Coeff is the strength of the regularizer, at least 0; 0 means none.
	Coeff float64
	// FisherDecay is the decay of F, at least 0 and below 1.
	FisherDecay float64
	// Denominator is the largest magnitude in a tensor, measured in steps; at least 1:
	// 2^(b−1) for b bits in the CAGE authors' code, 2^(b−1) − 1 on the integer grid of
	// the LOTION paper.
	Denominator float64
}

// DefaultLotion is the setting used in the CAGE paper's comparison with 4-bit weights:
// the best strength of its sweep, and the constants of the authors' code.
var DefaultLotion = Lotion{Coeff: 4000, FisherDecay: 0.999, Denominator: 8}

// lotionTerms is what one step of one tensor gives. What the caller does not use is not
// computed.
type lotionTerms struct {
	// gradient is g + ∂R/∂x, which the optimizer gets in the place of g.
	gradient program.Value
	// fisher is F for the next step.
	fisher program.Value
	// regularizer is R, which belongs to the loss of this step, and variance is
	// Σ σ², the expected squared error of randomized rounding; both are scalars.
	regularizer, variance program.Value
}

// regularize writes one step of a weight tensor with a quantizer of its own. x is the
// point at which the gradient was taken, before weight decay; fisher is F as the
// step before left it, zeros at first. x, gradient and fisher have one shape of
// at least one axis.
//
// The regularizer uses F as it comes in, and F is then updated with the gradient as it
// comes in: that of the task alone, after clipping. How the authors' training loop
// ordered this is not known (their code is public only as a class without the loop
// that calls it), and F might as well see unclipped gradients, or gradients that
// contain the regularizer. As it is here, nothing that LOTION adds enters its own
// measure of curvature, and the regularizer itself is never clipped.
//
// A tensor of zeros has no regularizer. A tensor with a NaN or ±Inf gives a gradient
// with NaN; its loss is not finite either, and no step is taken. With a strength
// of 0 the gradient is handed through, the same bits as without LOTION.
func (l Lotion) regularize(b *program.Builder, x, gradient, fisher program.Value) lotionTerms {
	amax := x.Abs().MaxAll()
	step := amax.Scale(1 / l.Denominator)
	// x/max|x| first: so the largest weight, which is a point of the grid at every
	// step, stays one in any precision. In x/s it could fall just below, where the
	// derivative has the other sign.
	r := x.Div(amax.Max(b.Const(smallest))).Scale(l.Denominator)
	delta := r.Sub(r.Floor())
	spread := delta.Mul(b.Const(1).Sub(delta))
	t := lotionTerms{
		gradient:    gradient,
		fisher:      fisher.Scale(l.FisherDecay).Add(gradient.Square().Scale(1 - l.FisherDecay)),
		regularizer: sum(fisher.Mul(spread)).Mul(step).Mul(step).Scale(l.Coeff / 2),
		variance:    sum(spread).Mul(step).Mul(step),
	}
	if l.Coeff > 0 {
		slope := b.Const(0.5).Sub(delta).Mul(step.Scale(l.Coeff)) // ½·Coeff·s·(1 − 2Δ)
		t.gradient = gradient.Add(fisher.Mul(slope))
	}
	return t
}

// fisherState is the name of F among the state tensors of a rule.
const fisherState = "lotion.fisher"

// regularized reports whether the rule has LOTION's regularizer.
func (r Rule) regularized() bool { return r.Lotion != nil && r.Quantizer != nil }

// smallest is the least normal binary32 number. It stands in for the maximum of a
// tensor of zeros.
const smallest = 0x1p-126
