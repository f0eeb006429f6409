package pack

import "math"

// BF16 returns the bits of the bfloat16 that is nearest to v, ties to even.
func BF16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40 // stays NaN when its low bits are cut off
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// F16 returns the bits of the IEEE binary16 number that is nearest to v, ties to even;
// beyond the largest one it is infinite.
func F16(v float32) uint16 {
	b := math.Float32bits(v)
	sign, m := uint16(b>>16&0x8000), math.Abs(float64(v))
	switch {
	case v != v:
		return sign | 0x7e00
	case m >= 65520: // half way between the largest number and 2^16
		return sign | 0x7c00
	case m < 0x1p-14:
		return sign | uint16(math.RoundToEven(m*0x1p24)) // a carry gives the smallest normal number
	}
	fraction, exponent := math.Frexp(m) // in [½, 1)
	units := uint16(math.RoundToEven(fraction * 2048))
	return sign | (uint16(exponent+13)<<10 + units) // the leading bit of units adds 1 to the exponent
}

// ExactF16 returns the bits of the half float that equals v, if there is one.
func ExactF16(v float32) (bits uint16, ok bool) {
	m := math.Abs(float64(v))
	if m > 65504 || v != v {
		return 0, false
	}
	unit := 0x1p-24
	if m >= 0x1p-14 {
		_, exponent := math.Frexp(m)
		unit = math.Ldexp(1, exponent-11)
	}
	return F16(v), math.Mod(m, unit) == 0
}

// ExactBF16 returns the bits of the bfloat16 that equals v, if there is one.
func ExactBF16(v float32) (bits uint16, ok bool) {
	b := math.Float32bits(v)
	return uint16(b >> 16), b&0xffff == 0 && v == v
}

// E8M0 returns the code of a scale that is a power of two from 2^−127 to 2^127: the exponent
// plus 127.
func E8M0(v float32) (code byte, ok bool) {
	fraction, exponent := math.Frexp(float64(v))
	if fraction != 0.5 || exponent-1 < -127 || exponent-1 > 127 {
		return 0, false
	}
	return byte(exponent - 1 + 127), true
}

// E4M3Values lists the numbers of E4M3 from 0 to 448, each at the index that is its code.
func E4M3Values() []float32 {
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
