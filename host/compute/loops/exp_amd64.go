//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// exp512 is the exponential of numbers that are at most expMost, or NaN.
func exp512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats16) floats16 {
	x = low.Max(x) // of two that cannot be compared, the second: NaN stays
	m := x.Mul(factor).Add(shift).Sub(shift)
	r := x.Sub(m.Mul(upper)).Sub(m.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	return p.Mul(r.Mul(r)).Add(r).Add(one).Scale(m) // rounds once, as the two factors do
}

// exp256 is exp512 with narrower vectors.
func exp256(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats8, bias, start archsimd.Int32x8) floats8 {
	x = low.Max(x)
	shifted := x.Mul(factor).Add(shift)
	m := shifted.Sub(shift)
	r := x.Sub(m.Mul(upper)).Sub(m.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	k := shifted.AsInt32x8().Sub(start)
	half := k.ShiftAllRight(1)
	y := p.Mul(r.Mul(r)).Add(r).Add(one).Mul(half.Add(bias).ShiftAllLeft(23).AsFloat32x8())
	return y.Mul(k.Sub(half).Add(bias).ShiftAllLeft(23).AsFloat32x8())
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
		x := high.Min(archsimd.LoadFloat32x16(a).Mul(times).Sub(less))
		exp512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one).Store(dst)
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
		x := high.Min(get(a).Mul(times).Sub(less))
		exp256(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one, bias, start).Store(dst)
		dst, a = dst[8:], a[8:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}
