// Package fpmodel computes four-bit floating-point formats in float64, element by element and by
// comparison with all levels. It is a slow and simple model for tests of programs. It does not
// choose scales.
package fpmodel

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
)

// Magnitudes lists the magnitudes of E2M1 in the order of their codes.
var Magnitudes = [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// Nearest returns the index of the number nearest to m ≥ 0 in a sorted list that begins with zero.
// Ties go to the even index unless ties says otherwise.
func Nearest(m float64, list []float64, ties microscaling.Ties) (index int) {
	for i := 1; i < len(list); i++ {
		switch middle := (list[i-1] + list[i]) / 2; {
		case m > middle, m == middle &&
			(ties == microscaling.TiesAway || ties != microscaling.TiesDown && i%2 == 0):
			index = i
		}
	}
	return index
}

// E2M1 rounds a ratio to a level. The code of a negative number, including −0, is 8 plus the code
// of its magnitude.
func E2M1(r float64, ties microscaling.Ties) (code int, value float64) {
	code = Nearest(math.Abs(r), Magnitudes[:], ties)
	value = math.Copysign(Magnitudes[code], r)
	if math.Signbit(r) {
		code += 8
	}
	return code, value
}

// Decode multiplies the levels of codes by the scales of their blocks, in rows of d elements.
func Decode(codes, scales []float64, d, block int) []float64 {
	out := make([]float64, len(codes))
	blocks := (d + block - 1) / block
	for i, code := range codes {
		out[i] = Magnitudes[int(code)%8] * scales[i/d*blocks+i%d/block]
		if code >= 8 {
			out[i] = -out[i]
		}
	}
	return out
}
