// Package halffloat converts between float32 and the 16-bit floating-point formats.
package halffloat

import "math"

// FromHalf returns the value of an IEEE 754 binary16 number, given its bits.
func FromHalf(bits uint16) float32 {
	const infinity = 0x1f
	sign, exponent, mantissa := uint32(bits&0x8000)<<16, uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch exponent {
	case 0: // steps of 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*0x1p-24))
	case infinity:
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}

// ToHalf rounds v to IEEE 754 binary16, ties to even, and returns the bits. Values beyond the
// largest finite number become infinite.
func ToHalf(v float32) uint16 {
	b := math.Float32bits(v)
	sign, m := uint16(b>>16&0x8000), math.Abs(float64(v))
	switch {
	case v != v:
		return sign | 0x7e00
	case m >= 65520: // the midpoint of the largest finite number and 2^16
		return sign | 0x7c00
	case m < 0x1p-14:
		return sign | uint16(math.RoundToEven(m*0x1p24)) // a carry gives the smallest normal number
	}
	fraction, exponent := math.Frexp(m) // in [½, 1)
	units := uint16(math.RoundToEven(fraction * 2048))
	return sign | (uint16(exponent+13)<<10 + units) // the leading bit of units adds 1 to the exponent
}

// FromBFloat16 returns the value of a bfloat16 number, given its bits.
func FromBFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// ToBFloat16 rounds v to bfloat16, ties to even, and returns the bits.
func ToBFloat16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40 // keeps NaN a NaN when its low bits are cut off
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
