package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// amplitude is A, which is the same in all recipes of the published code (microsoft/StableQAT,
// models/utils_quant.py, commit 47605356).
const amplitude = 0.21

// sineDerivative returns the derivative of rounding at r according to StableQAT (Chen et al.,
// "StableQAT: Stable Quantization-Aware Training at Ultra-Low Bitwidths", 2026, arXiv 2601.19320).
// The staircase, rotated by 45°, is a triangle wave; the first term of its Fourier series, damped
// to the amplitude A and rotated back, has at (r, round(r)) the slope
//
//	(1 − C)/(1 + C)    C = √2·π·A·cos(π·(r + round(r)))
//
// It is 0.035 at a level, where rounding is flat, and 1 at the midpoint of two levels.
//
// Since r + round(r) is 2·round(r) minus the deviation round(r) − r, the cosine is that of
// π·deviation.
func sineDerivative(deviation program.Value) program.Value {
	sum := cosine(deviation).Scale(math.Sqrt2 * math.Pi * amplitude)
	return deviation.Builder().Const(2).Div(sum.Shift(1)).Shift(-1)
}

// cosine returns cos(π·t) for |t| ≤ ½ by its Taylor series up to the 20th power, whose truncation
// error is below 2e-17. The CPU computes the operation cos element by element, without vectors.
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
