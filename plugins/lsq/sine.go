package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// largestAmplitude keeps the sum C of [sineDerivative] below 1, where the derivative would
// vanish and then be negative: √2·π·0.225 is 0.9996.
const largestAmplitude = 0.225

// sineDerivative is what StableQAT (Chen et al., "StableQAT: Stable Quantization-Aware
// Training at Ultra-Low Bitwidths", 2026, arXiv 2601.19320) takes for the derivative of
// rounding at r. The staircase, turned by 45°, is a triangle wave; a Fourier series of it,
// damped to the amplitude A and turned back, has at (r, round(r)) the slope
//
//	(1 − C)/(1 + C)    C = √2·π·A·Σ (−1)^m/(2m+1)·cos((2m+1)·π·(r + round(r))), m = 0 … M
//
// With M = 0 and A = 0.21 it is 0.035 at a level, where rounding is flat, and 1 half way
// between two levels. The published code (microsoft/StableQAT, models/utils_quant.py, commit
// 47605356) takes a list with the coefficient of each term in place of A and M; all of its
// recipes have the one term A = 0.21.
//
// The sum r + round(r) is 2·round(r) less the deviation round(r) − r, and so the cosines are
// those of multiples of π·deviation.
func sineDerivative(deviation program.Value, amplitude float64, order int) program.Value {
	// Terms by cos((k+2)·a) = 2·cos(2a)·cos(k·a) − cos((k−2)·a), where cos(−a) = cos(a).
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

// cosine is cos(π·t) for |t| ≤ ½, by its Taylor series up to the 20th power: programs have no
// cosine. What is left out is below 2e-17.
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
