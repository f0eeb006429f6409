//go:build amd64 && goexperiment.simd

package loops

import (
	"math"
	"simd/archsimd"
)

// The loops that programs of quantizers spend most of their time in, with AVX2, by 32 elements at a time. They return how many
// elements they have computed.

// A floats8 is a vector.
type floats8 = archsimd.Float32x8

func get(a []float32) floats8 { return archsimd.LoadFloat32x8(a) }

func unary256(op Op, dst, a []float32) (n int) {
	switch op {
	case Abs:
		n = abs256(dst, a)
	case Exp:
		n = expLinVectors(dst, a, 1, 0)
	case Tanh:
		n = tanh256(dst, a)
	}
	return n
}

func abs256(dst, a []float32) int {
	if hasAVX512 {
		return abs512(dst, a)
	}
	n := len(dst) &^ 31
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		get(x[0:8]).Abs().Store(to[0:8])
		get(x[8:16]).Abs().Store(to[8:16])
		get(x[16:24]).Abs().Store(to[16:24])
		get(x[24:32]).Abs().Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func binaryS256(op Op, dst, a []float32, s float32) (n int) {
	switch op {
	case Lt:
		n = lessS256(dst, a, s)
	case Le:
		n = lessEqualS256(dst, a, s)
	case And:
		n = andS256(dst, a, s)
	case EqBits:
		n = equalBitsS256(dst, a, s)
	case Shl, ShrUint:
		n = shiftS256(op, dst, a, s)
	}
	return n
}

func lessS256(dst, a []float32, s float32) int {
	n := len(dst) &^ 31
	y, one := archsimd.BroadcastFloat32x8(s), archsimd.BroadcastFloat32x8(1)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		one.Masked(get(x[0:8]).Less(y)).Store(to[0:8])
		one.Masked(get(x[8:16]).Less(y)).Store(to[8:16])
		one.Masked(get(x[16:24]).Less(y)).Store(to[16:24])
		one.Masked(get(x[24:32]).Less(y)).Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func lessEqualS256(dst, a []float32, s float32) int {
	n := len(dst) &^ 31
	y, one := archsimd.BroadcastFloat32x8(s), archsimd.BroadcastFloat32x8(1)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		one.Masked(get(x[0:8]).LessEqual(y)).Store(to[0:8])
		one.Masked(get(x[8:16]).LessEqual(y)).Store(to[8:16])
		one.Masked(get(x[16:24]).LessEqual(y)).Store(to[16:24])
		one.Masked(get(x[24:32]).LessEqual(y)).Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func andS256(dst, a []float32, s float32) int {
	n := len(dst) &^ 31
	y := archsimd.BroadcastFloat32x8(s).ToBits()
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		get(x[0:8]).ToBits().And(y).BitsToFloat32().Store(to[0:8])
		get(x[8:16]).ToBits().And(y).BitsToFloat32().Store(to[8:16])
		get(x[16:24]).ToBits().And(y).BitsToFloat32().Store(to[16:24])
		get(x[24:32]).ToBits().And(y).BitsToFloat32().Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func equalBitsS256(dst, a []float32, s float32) int {
	n := len(dst) &^ 31
	one := archsimd.BroadcastFloat32x8(1)
	y := archsimd.BroadcastFloat32x8(s).ToBits()
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		one.Masked(get(x[0:8]).ToBits().Equal(y)).Store(to[0:8])
		one.Masked(get(x[8:16]).ToBits().Equal(y)).Store(to[8:16])
		one.Masked(get(x[16:24]).ToBits().Equal(y)).Store(to[16:24])
		one.Masked(get(x[24:32]).ToBits().Equal(y)).Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// shiftS256 has a count for each element: the one instruction with a common count that is not constant would have to move it between
// kinds of registers.
func shiftS256(op Op, dst, a []float32, s float32) int {
	n := len(dst) &^ 7
	by := archsimd.BroadcastUint32x8(math.Float32bits(s) & 31)
	for len(dst) >= 8 && len(a) >= 8 {
		x := get(a).ToBits()
		if op == Shl {
			x = x.ShiftLeft(by)
		} else {
			x = x.ShiftRight(by)
		}
		x.BitsToFloat32().Store(dst)
		dst, a = dst[8:], a[8:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// clamped compares and chooses, as NaN stays.
func clamped(x, lo, hi floats8) floats8 {
	x = lo.IfElse(x.Less(lo), x)
	return hi.IfElse(x.Greater(hi), x)
}

func clamp256(dst, a []float32, lo, hi float32) int {
	if hasAVX512 {
		return clamp512(dst, a, lo, hi)
	}
	n := len(dst) &^ 31
	l, h := archsimd.BroadcastFloat32x8(lo), archsimd.BroadcastFloat32x8(hi)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		clamped(get(x[0:8]), l, h).Store(to[0:8])
		clamped(get(x[8:16]), l, h).Store(to[8:16])
		clamped(get(x[16:24]), l, h).Store(to[16:24])
		clamped(get(x[24:32]), l, h).Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func roundMulS256(dst, a []float32, s float32) int {
	if hasAVX512 {
		return roundMulS512(dst, a, s)
	}
	n := len(dst) &^ 31
	shift, y := archsimd.BroadcastFloat32x8(shifter), archsimd.BroadcastFloat32x8(s)
	for len(dst) >= 32 && len(a) >= 32 {
		to, x := (*[32]float32)(dst), (*[32]float32)(a)
		get(x[0:8]).Add(shift).Sub(shift).Mul(y).Store(to[0:8])
		get(x[8:16]).Add(shift).Sub(shift).Mul(y).Store(to[8:16])
		get(x[16:24]).Add(shift).Sub(shift).Mul(y).Store(to[16:24])
		get(x[24:32]).Add(shift).Sub(shift).Mul(y).Store(to[24:32])
		dst, a = dst[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func near256(dst, a, b []float32, s float32) int {
	if hasAVX512 {
		return near512(dst, a, b, s)
	}
	n := len(dst) &^ 31
	z, one := archsimd.BroadcastFloat32x8(s), archsimd.BroadcastFloat32x8(1)
	for len(dst) >= 32 && len(a) >= 32 && len(b) >= 32 {
		to, x, y := (*[32]float32)(dst), (*[32]float32)(a), (*[32]float32)(b)
		one.Masked(get(x[0:8]).Sub(get(y[0:8])).Abs().LessEqual(z)).Store(to[0:8])
		one.Masked(get(x[8:16]).Sub(get(y[8:16])).Abs().LessEqual(z)).Store(to[8:16])
		one.Masked(get(x[16:24]).Sub(get(y[16:24])).Abs().LessEqual(z)).Store(to[16:24])
		one.Masked(get(x[24:32]).Sub(get(y[24:32])).Abs().LessEqual(z)).Store(to[24:32])
		dst, a, b = dst[32:], a[32:], b[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func selectS256(dst, c, a []float32, s float32) int {
	if hasAVX512 {
		return selectS512(dst, c, a, s)
	}
	n := len(dst) &^ 31
	zero, other := archsimd.BroadcastFloat32x8(0), archsimd.BroadcastFloat32x8(s)
	for len(dst) >= 32 && len(c) >= 32 && len(a) >= 32 {
		to, x, y := (*[32]float32)(dst), (*[32]float32)(a), (*[32]float32)(c)
		get(x[0:8]).IfElse(get(y[0:8]).NotEqual(zero), other).Store(to[0:8])
		get(x[8:16]).IfElse(get(y[8:16]).NotEqual(zero), other).Store(to[8:16])
		get(x[16:24]).IfElse(get(y[16:24]).NotEqual(zero), other).Store(to[16:24])
		get(x[24:32]).IfElse(get(y[24:32]).NotEqual(zero), other).Store(to[24:32])
		dst, c, a = dst[32:], c[32:], a[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// repeated has the numbers of one element, for every element of a vector.
var repeated = func() (list [8][8]uint32) {
	for i := range list {
		for j := range list[i] {
			list[i][j] = uint32(i)
		}
	}
	return list
}()

// spread256 takes times that are a multiple of 8, and returns how many elements of a it has repeated.
func spread256(dst, a []float32, times int) int {
	n := len(a) &^ 7
	for ; len(a) >= 8; a = a[8:] {
		v := get(a)
		for i := range repeated {
			x := v.Permute(archsimd.LoadUint32x8Array(&repeated[i]))
			for j := 0; j < times; j += 8 {
				x.Store(dst[j : j+8])
			}
			dst = dst[times:]
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func tanh256(dst, a []float32) int {
	n := len(dst) &^ 7
	all := archsimd.BroadcastFloat32x8
	var far [512]float32
	for len(dst) >= 8 {
		part := min(len(dst)&^7, len(far))
		for i := 0; i < part; i += 8 {
			m := get(a[i : i+8]).Abs()
			m.Add(m).Store(far[i : i+8])
		}
		expLinVectors(far[:part], far[:part], 1, 0)
		limit, zero, one, two := all(tanhNear), all(0), all(1), all(2)
		p0, p1, p2, p3, p4 := all(tanhP0), all(tanhP1), all(tanhP2), all(tanhP3), all(tanhP4)
		for i := 0; i < part; i += 8 {
			x := get(a[i : i+8])
			y := one.Sub(two.Div(get(far[i : i+8]).Add(one)))
			y = zero.Sub(y).IfElse(x.Less(zero), y)
			z := x.Mul(x)
			p := z.Mul(p0).Add(p1)
			p = p.Mul(z).Add(p2)
			p = p.Mul(z).Add(p3)
			p = p.Mul(z).Add(p4)
			p = p.Mul(z).Mul(x).Add(x)
			y.IfElse(x.Abs().GreaterEqual(limit), p).Store(dst[i : i+8])
		}
		archsimd.ClearAVXUpperBits()
		dst, a = dst[part:], a[part:]
	}
	return n
}

// largest256 takes groups of a multiple of 8 elements.
func largest256(dst, a []float32, size int) {
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := get(group).Abs().AsInt32x8()
		for i := 8; i < size; i += 8 {
			x = x.Max(get(group[i : i+8]).Abs().AsInt32x8())
		}
		m := x.GetLo().Max(x.GetHi())
		m = m.Max(m.PermuteScalars(2, 3, 0, 1))
		m = m.Max(m.PermuteScalars(1, 0, 3, 2))
		dst[g] = fromInt(m.GetElem(0))
	}
	archsimd.ClearAVXUpperBits()
}

// extreme256 takes groups of a multiple of 8 elements. What the processor's maximum makes of NaN is no matter: whether there is
// one is found out beside it.
func extreme256(op Op, dst, a []float32, size int) {
	nan := float32(math.NaN())
	for g := range dst {
		group := a[g*size : (g+1)*size]
		x := get(group)
		unordered := x.NotEqual(x)
		for i := 8; i < size; i += 8 {
			y := get(group[i : i+8])
			unordered = unordered.Or(y.NotEqual(y))
			if op == Max {
				x = x.Max(y)
			} else {
				x = x.Min(y)
			}
		}
		m := most(op, x.GetLo(), x.GetHi())
		m = most(op, m, m.AsInt32x4().PermuteScalars(2, 3, 0, 1).AsFloat32x4())
		m = most(op, m, m.AsInt32x4().PermuteScalars(1, 0, 3, 2).AsFloat32x4())
		dst[g] = fromInt(m.Add(archsimd.Float32x4{}).AsInt32x4().GetElem(0)) // a zero gets the positive sign
		if unordered.ToBits() != 0 {
			dst[g] = nan
		}
	}
	archsimd.ClearAVXUpperBits()
}

func most(op Op, x, y archsimd.Float32x4) archsimd.Float32x4 {
	if op == Max {
		return x.Max(y)
	}
	return x.Min(y)
}
