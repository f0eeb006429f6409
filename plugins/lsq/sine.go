package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// largestAmplitude keeps the sum C of [sineDerivative] below 1, where the derivative would become 0
// and then negative: √2·π·0.225 is 0.9996.
const largestAmplitude = 0.225

// sineDerivative returns the derivative of rounding at r according to StableQAT (Chen et al.,
// "StableQAT: Stable Quantization-Aware Training at Ultra-Low Bitwidths", 2026, arXiv 2601.19320).
// The staircase, rotated by 45°, is a triangle wave; its Fourier series, damped to the amplitude A
// and rotated back, has at (r, round(r)) the slope
//
//	(1 − C)/(1 + C)    C = √2·π·A·Σ (−1)^m/(2m+1)·cos((2m+1)·π·(r + round(r))), m = 0 … M
//
// With M = 0 and A = 0.21 it is 0.035 at a level, where rounding is flat, and 1 at the midpoint of
// two levels. The published code (microsoft/StableQAT, models/utils_quant.py, commit 47605356) has
// a list with the coefficient of each term instead of A and M; all of its recipes use the single
// term A = 0.21.
//
// The sum r + round(r) equals 2·round(r) minus the deviation round(r) − r, so the cosines can be
// computed from multiples of π·deviation.
func sineDerivative(deviation program.Value, amplitude float64, order int) program.Value {
	// Recurrence: cos((k+2)·a) = 2·cos(2a)·cos(k·a) − cos((k−2)·a), with cos(−a) = cos(a).
	term := cosine(deviation)
	before, twice := term, term.Square().Scale(4).Shift(-2)
	coefficient := math.Sqrt2 * math.Pi * amplitude
	sum := term.Scale(coefficient)
	for m := 1; m <= order; m++ {
		before, term = term, twice.Mul(term).Sub(before)
		coefficient = -coefficient
		sum = sum.Add(term.Scale(coefficient / float64(2*m+1)))
	}
	return term.Builder().Const(2).Div(sum.Shift(1)).Shift(-1)
}

// cosine returns cos(π·t) for |t| ≤ ½, by its Taylor series up to the 20th power, as programs have
// no cosine. The truncation error is below 2e-17.
func cosine(t program.Value) program.Value {
	const terms = 10
	square, coefficients := t.Square(), [terms + 1]float64{1}
	for k := 1; k <= terms; k++ {
		coefficients[k] = -coefficients[k-1] * math.Pi * math.Pi / float64(2*k*(2*k-1))
	}
	sum := square.Scale(coefficients[terms]).Shift(coefficients[terms-1])
	for k := terms - 2; k >= 0; k-- {
		sum = sum.Mul(square).Shift(coefficients[k])
	}
	return sum
}
