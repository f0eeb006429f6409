package lotion

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// Method is the configuration of LOTION for a run. With a step s of the grid of a
// weight tensor, constant in the gradient, and the Fisher average F,
//
//	s   = max|x| / Denominator
//	Δ_i = x_i/s − ⌊x_i/s⌋
//	σ²_i = s²·Δ_i·(1 − Δ_i)             variance of unbiased randomized rounding
//	R   = ½·Coeff·Σ F_i·σ²_i            added to the loss
//	∂R/∂x_i = ½·Coeff·F_i·s·(1 − 2Δ_i)
//	F   ← FisherDecay·F + (1 − FisherDecay)·g²
//
// F starts at zero and has no bias correction. On the grid, Δ = 0, where R has a
// kink, the formula gives the derivative to the right.
type Method struct {
	// Coeff is the strength of the regularizer, at least 0; 0 is none.
	Coeff float64
	// FisherDecay is the decay of F, at least 0 and below 1.
	FisherDecay float64
	// Denominator is the largest magnitude of a tensor in steps, at least 1:
	// 2^(b−1) for b bits in the CAGE authors' code, 2^(b−1) − 1 on the integer
	// grid of the LOTION paper.
	Denominator float64
}

// Default is the setting of the CAGE paper's comparison, 4-bit weights: the best
// strength of its sweep and the constants of the authors' code.
var Default = Method{Coeff: 4000, FisherDecay: 0.999, Denominator: 8}

// Check fails for values outside the method's definition.
func (m Method) Check() error {
	if !(m.Coeff >= 0) || math.IsInf(m.Coeff, 0) {
		return fmt.Errorf("coeff %v: use a finite number of at least 0", m.Coeff)
	}
	if !(m.FisherDecay >= 0 && m.FisherDecay < 1) {
		return fmt.Errorf("fisher decay %v: use a number of at least 0 and below 1", m.FisherDecay)
	}
	if !(m.Denominator >= 1) || math.IsInf(m.Denominator, 0) {
		return fmt.Errorf("denominator %v: use a finite number of at least 1", m.Denominator)
	}
	return nil
}

// Terms is what one step of one tensor gives. What the caller does not use is not
// computed.
type Terms struct {
	// Gradient is g + ∂R/∂x, which the optimizer gets in the place of g.
	Gradient program.Value
	// Fisher is F for the next step.
	Fisher program.Value
	// Regularizer is R, which belongs to the loss of this step, and Variance is
	// Σ σ², the expected squared error of randomized rounding; both are scalars.
	Regularizer, Variance program.Value
}

// Regularize writes one step of a weight tensor with a quantizer of its own. x is the
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
func (m Method) Regularize(b *program.Builder, x, gradient, fisher program.Value) Terms {
	amax := x.Abs().ReduceMax(axes(x)...)
	step := amax.Scale(1 / m.Denominator)
	// x/max|x| first: so the largest weight, which is a point of the grid at every
	// step, stays one in any precision. In x/s it could fall just below, where the
	// derivative has the other sign.
	r := x.Div(amax.Max(b.Const(smallest))).Scale(m.Denominator)
	delta := r.Sub(r.Floor())
	spread := delta.Mul(b.Const(1).Sub(delta))
	t := Terms{
		Gradient:    gradient,
		Fisher:      fisher.Scale(m.FisherDecay).Add(gradient.Square().Scale(1 - m.FisherDecay)),
		Regularizer: sum(fisher.Mul(spread)).Mul(step).Mul(step).Scale(m.Coeff / 2),
		Variance:    sum(spread).Mul(step).Mul(step),
	}
	if m.Coeff > 0 {
		slope := b.Const(0.5).Sub(delta).Mul(step.Scale(m.Coeff)) // ½·Coeff·s·(1 − 2Δ)
		t.Gradient = gradient.Add(fisher.Mul(slope))
	}
	return t
}

// smallest is the least normal binary32 number. It stands in for the maximum of a
// tensor of zeros.
const smallest = 0x1p-126

// sum adds up rows first: in float32 one running sum over millions of terms loses
// what is small beside it.
func sum(v program.Value) program.Value {
	if rank := v.Type().Rank(); rank > 1 {
		v = v.Sum(rank - 1)
	}
	return v.SumAll()
}

// axes are all axes of v.
func axes(v program.Value) []int {
	all := make([]int, v.Type().Rank())
	for i := range all {
		all[i] = i
	}
	return all
}
