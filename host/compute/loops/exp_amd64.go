//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// Numbers are compared and chosen, as the compiler may exchange the operands of a maximum or minimum, of which the second is the
// result where one is NaN.

// reduced512 returns y and n, where the exponential of x is y·2ⁿ. Its constants are arguments one by one, as the compiler keeps
// the fields of a structure with more than four in memory.
func reduced512(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats16) (y, n floats16) {
	n = x.Mul(factor).Add(shift).Sub(shift)
	r := x.Sub(n.Mul(upper)).Sub(n.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	return p.Mul(r.Mul(r)).Add(r).Add(one), n
}

// reduced256 is reduced512 with narrower vectors, and n with shift added.
func reduced256(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats8) (y, shifted floats8) {
	shifted = x.Mul(factor).Add(shift)
	n := shifted.Sub(shift)
	r := x.Sub(n.Mul(upper)).Sub(n.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	return p.Mul(r.Mul(r)).Add(r).Add(one), shifted
}

// expLinVectors returns how many elements it has computed, which are whole vectors of eight.
func expLinVectors(dst, a []float32, scale, down float32) int {
	n := 0
	if hasAVX512 {
		n = expLin512(dst, a, scale, down)
	}
	return n + expLin256(dst[n:], a[n:], scale, down)
}

func expLin512(dst, a []float32, scale, down float32) int {
	n := len(dst) &^ 15
	all := archsimd.BroadcastFloat32x16
	times, less := all(scale), all(down)
	low, high, shift, factor, upper, lower := all(expLeast), all(expMost), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	for len(dst) >= 16 && len(a) >= 16 {
		x := get16(a).Mul(times).Sub(less)
		x = low.IfElse(x.Less(low), x)
		x = high.IfElse(x.Greater(high), x)
		y, power := reduced512(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
		y.Scale(power).Store(dst) // rounds once, as the two factors of exp do
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func expLin256(dst, a []float32, scale, down float32) int {
	n := len(dst) &^ 7
	if n == 0 {
		return 0
	}
	all := archsimd.BroadcastFloat32x8
	times, less := all(scale), all(down)
	low, high, shift, factor, upper, lower := all(expLeast), all(expMost), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	bias, start := archsimd.BroadcastInt32x8(127), archsimd.BroadcastInt32x8(shifterBits)
	for len(dst) >= 8 && len(a) >= 8 {
		x := clamped(get(a).Mul(times).Sub(less), low, high)
		y, shifted := reduced256(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
		k := shifted.AsInt32x8().Sub(start)
		half := k.ShiftAllRight(1)
		y = y.Mul(half.Add(bias).ShiftAllLeft(23).AsFloat32x8())
		y.Mul(k.Sub(half).Add(bias).ShiftAllLeft(23).AsFloat32x8()).Store(dst)
		dst, a = dst[8:], a[8:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}
