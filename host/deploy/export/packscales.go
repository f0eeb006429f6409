package export

import "math"

// codeE8M0 returns the code of a scale that is a power of two from 2^−127 to 2^127: the exponent
// plus 127.
func codeE8M0(v float32) (code byte, ok bool) {
	fraction, exponent := math.Frexp(float64(v))
	if fraction != 0.5 || exponent-1 < -127 || exponent-1 > 127 {
		return 0, false
	}
	return byte(exponent - 1 + 127), true
}

// valuesE4M3 lists the numbers of E4M3 from 0 to 448, indexed by code.
func valuesE4M3() []float32 {
	list := make([]float32, 127)
	for code := range list {
		exponent, mantissa := code>>3, code&7
		if exponent == 0 {
			list[code] = float32(math.Ldexp(float64(mantissa), -9))
		} else {
			list[code] = float32(math.Ldexp(float64(8+mantissa), exponent-10))
		}
	}
	return list
}
