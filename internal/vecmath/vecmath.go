// Package vecmath computes functions of the elements of vectors, with AVX-512, with AVX2 or in plain Go; the processor
// determines which. The last bits of results depend on that choice and on nothing else.
package vecmath

import "math"

// kernels are the functions for one kind of processor.
type kernels struct {
	name string
	// exps sets x to exp(scale·(x − shift)), and returns the sum.
	exps func(x []float32, shift, scale float32) float32
	// swiGLU is SwiGLU.
	swiGLU func(a, b []float32)
}

// active are the kernels of this processor.
var active = supported()[0]

var portable = kernels{"portable", expsPortable, swiGLUPortable}

// Softmax sets x to exp(scale·x) divided by its sum.
func Softmax(x []float32, scale float32) {
	most := float32(math.Inf(-1))
	for _, v := range x {
		if v > most { // the builtin max, which keeps NaN, takes ten times as long
			most = v
		} else if v != v {
			most = v
			break
		}
	}
	if most-most != 0 { // not a number, or infinite, of which the difference is none: kernels need not keep it
		for i := range x {
			x[i] = float32(math.NaN())
		}
		return
	}
	factor := 1 / active.exps(x, most, scale)
	for i := range x {
		x[i] *= factor
	}
}

// SwiGLU sets a to silu(a)·b, where silu(a) = a/(1 + exp(−a)). b must be at least as long as a.
func SwiGLU(a, b []float32) { active.swiGLU(a, b[:len(a)]) }

func expsPortable(x []float32, shift, scale float32) float32 {
	sum := float32(0)
	for i, v := range x {
		x[i] = float32(math.Exp(float64(scale * (v - shift))))
		sum += x[i]
	}
	return sum
}

func swiGLUPortable(a, b []float32) {
	for i, v := range a {
		a[i] = v / (1 + float32(math.Exp(-float64(v)))) * b[i]
	}
}

// The exponential is 2ⁿ·exp(r) with r = x − n·log 2 in ±log(2)/2, of which the polynomial is that of Cephes' expf (Moshier,
// 1989): within two units of the last place. log 2 is the sum of two numbers, of which the first has few bits.
const (
	log2e     = 1.44269504088896341
	log2Upper = 0.693359375
	log2Lower = -2.12194440e-4
	p0        = 1.9875691500e-4
	p1        = 1.3981999507e-3
	p2        = 8.3334519073e-3
	p3        = 4.1665795894e-2
	p4        = 1.6666665459e-1
	p5        = 5.0000001201e-1
	least     = -126 * math.Ln2 // results below 2⁻¹²⁶ are 2⁻¹²⁶, too little to be seen in a sum with 1
	most      = 127 * math.Ln2
)

// FromHalf returns the value of an IEEE binary16 number.
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

// ToHalf returns the bits of the IEEE binary16 number that is nearest to v, ties to even; beyond the
// largest one it is infinite.
func ToHalf(v float32) uint16 {
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

// ToBFloat16 returns the bits of the bfloat16 that is nearest to v, ties to even.
func ToBFloat16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40 // stays NaN when its low bits are cut off
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
