//go:build amd64 && goexperiment.simd

package loops

import (
	"simd/archsimd"
	"unsafe"
)

// The loops of hot_amd64.go and memory_amd64.go with AVX-512, by whole vectors of 16 elements. They return how many elements
// they have computed.

// hasAVX512 says that vectors of 16 elements may be used.
var hasAVX512 = hasAVX2 && archsimd.X86.AVX512()

// A floats16 is a vector.
type floats16 = archsimd.Float32x16

func get16(a []float32) floats16 { return archsimd.LoadFloat32x16(a) }

func fromBFloat16x512(dst []float32, a []uint16) int {
	n := len(dst) &^ 15
	for len(dst) >= 16 && len(a) >= 16 {
		archsimd.LoadUint16x16(a).ExtendToUint32().ShiftAllLeft(16).BitsToFloat32().Store(dst)
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// A rounding has what vectors are rounded to bfloat16 with.
type rounding struct{ half, one, quiet, upper archsimd.Uint32x16 }

func newRounding() rounding {
	all := archsimd.BroadcastUint32x16
	return rounding{all(0x7fff), all(1), all(1 << 22), all(0xffff << 16)}
}

// short has the numbers in the upper halves, and what is left of their sums in the lower ones.
func (r rounding) short(x floats16) archsimd.Uint32x16 {
	bits := x.ToBits()
	rounded := bits.Add(r.half).Add(bits.ShiftAllRight(16).And(r.one))
	return bits.Or(r.quiet).IfElse(x.NotEqual(x), rounded)
}

// float has the rounded numbers as float32.
func (r rounding) float(x floats16) floats16 { return r.short(x).And(r.upper).BitsToFloat32() }

func toBFloat16x512(dst []uint16, a []float32) int {
	n, r := len(dst)&^15, newRounding()
	for len(dst) >= 16 && len(a) >= 16 {
		r.short(get16(a)).ShiftAllRight(16).TruncToUint16().Store(dst)
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func roundToBFloat16x512(dst, a []float32) int {
	n, r := len(dst)&^15, newRounding()
	for len(dst) >= 16 && len(a) >= 16 {
		r.float(get16(a)).Store(dst)
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func toInt8x512(dst []int8, a []float32) int {
	n := len(dst) &^ 15
	for len(dst) >= 16 && len(a) >= 16 {
		get16(a).ConvertToInt32().SaturateToInt8().Store(dst)
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// bytesOf are bools as they are in memory: 0 and 1.
func bytesOf(a []bool) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(a))), len(a))
}

func fromBools512(dst []float32, a []bool) int {
	n, bytes := len(dst)&^15, bytesOf(a)
	for len(dst) >= 16 && len(bytes) >= 16 {
		archsimd.LoadUint8x16(bytes).ExtendToUint32().BitsToInt32().ConvertToFloat32().Store(dst)
		dst, bytes = dst[16:], bytes[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func toBools512(dst []bool, a []float32) int {
	n, bytes := len(dst)&^15, bytesOf(dst)
	var zero floats16
	one := archsimd.BroadcastUint32x16(1)
	for len(bytes) >= 16 && len(a) >= 16 {
		one.Masked(get16(a).NotEqual(zero)).TruncToUint8().Store(bytes)
		bytes, a = bytes[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// clamped16 is [clamped].
func clamped16(x, lo, hi floats16) floats16 {
	x = lo.IfElse(x.Less(lo), x)
	return hi.IfElse(x.Greater(hi), x)
}

func clamp512(dst, a []float32, lo, hi float32) int {
	n := len(dst) &^ 31
	l, h := archsimd.BroadcastFloat32x16(lo), archsimd.BroadcastFloat32x16(hi)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		clamped16(get16(x[0:16]), l, h).Store(to[0:16])
		clamped16(get16(x[16:32]), l, h).Store(to[16:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func roundMulS512(dst, a []float32, s float32) int {
	n := len(dst) &^ 31
	shift, y := archsimd.BroadcastFloat32x16(shifter), archsimd.BroadcastFloat32x16(s)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		get16(x[0:16]).Add(shift).Sub(shift).Mul(y).Store(to[0:16])
		get16(x[16:32]).Add(shift).Sub(shift).Mul(y).Store(to[16:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func near512(dst, a, b []float32, s float32) int {
	n := len(dst) &^ 31
	z, one := archsimd.BroadcastFloat32x16(s), archsimd.BroadcastFloat32x16(1)
	for len(dst) >= 32 && len(a) >= 32 && len(b) >= 32 {
		to, x, y := (*[32]float32)(dst), (*[32]float32)(a), (*[32]float32)(b)
		one.Masked(get16(x[0:16]).Sub(get16(y[0:16])).Abs().LessEqual(z)).Store(to[0:16])
		one.Masked(get16(x[16:32]).Sub(get16(y[16:32])).Abs().LessEqual(z)).Store(to[16:32])
		dst, a, b = dst[32:], a[32:], b[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func selectS512(dst, c, a []float32, s float32) int {
	n := len(dst) &^ 31
	zero, other := archsimd.BroadcastFloat32x16(0), archsimd.BroadcastFloat32x16(s)
	for len(dst) >= 32 && len(c) >= 32 && len(a) >= 32 {
		to, x, y := (*[32]float32)(dst), (*[32]float32)(a), (*[32]float32)(c)
		get16(x[0:16]).IfElse(get16(y[0:16]).NotEqual(zero), other).Store(to[0:16])
		get16(x[16:32]).IfElse(get16(y[16:32]).NotEqual(zero), other).Store(to[16:32])
		dst, c, a = dst[32:], c[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func abs512(dst, a []float32) int {
	n := len(dst) &^ 31
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		get16(x[0:16]).Abs().Store(to[0:16])
		get16(x[16:32]).Abs().Store(to[16:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func quantize512(q *Quantizer, r *Quantized, a []float32) int {
	n, all := len(a)&^15, archsimd.BroadcastFloat32x16
	divisor, low, high, scale, distance := all(q.Divisor), all(q.Low), all(q.High), all(q.Scale), all(q.Distance)
	shift, one, round := all(shifter), archsimd.BroadcastUint32x16(1), newRounding()
	whole, codes, values, short, near := r.Whole, r.Codes, r.Values, r.Short, bytesOf(r.Near)
	for at := 0; at < n; at += 16 {
		x := get16(a[at:])
		if q.Divides {
			x = x.Div(divisor)
		}
		c := clamped16(x, low, high)
		if near != nil {
			one.Masked(x.Sub(c).Abs().LessEqual(distance)).TruncToUint8().Store(near[at:])
		}
		c = c.Add(shift).Sub(shift)
		if whole != nil {
			c.Store(whole[at:])
		}
		if codes != nil {
			c.ConvertToInt32().SaturateToInt8().Store(codes[at:])
		}
		c = c.Mul(scale)
		if values != nil {
			c.Store(values[at:])
		}
		if short != nil {
			round.short(c).ShiftAllRight(16).TruncToUint16().Store(short[at:])
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}
