//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

func gate(dst, a, b []uint16) int {
	n, round := len(dst)&^15, newRounding()
	all := archsimd.BroadcastFloat32x16
	zero, low, high, shift, factor, upper, lower := all(0), all(expLeast), all(expMost), all(shifter),
		all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4),
		all(expP5), all(1)
	for len(dst) >= 16 && len(a) >= 16 && len(b) >= 16 {
		x := getShort(a)
		sigma := logistic512(x, zero, low, high, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
		round.short(x.Mul(sigma).Mul(getShort(b))).Store(dst)
		dst, a, b = dst[16:], a[16:], b[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func gateAdjoints(da, db, a, b, d []uint16) int {
	n, round := len(d)&^15, newRounding()
	all := archsimd.BroadcastFloat32x16
	zero, low, high, shift, factor, upper, lower := all(0), all(expLeast), all(expMost), all(shifter),
		all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4),
		all(expP5), all(1)
	for len(d) >= 16 && len(da) >= 16 && len(db) >= 16 && len(a) >= 16 && len(b) >= 16 {
		x, dy := getShort(a), getShort(d)
		sigma := logistic512(x, zero, low, high, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
		slope := sigma.Mul(x.Mul(one.Sub(sigma)).Add(one))
		round.short(dy.Mul(getShort(b)).Mul(slope)).Store(da)
		round.short(dy.Mul(x.Mul(sigma))).Store(db)
		da, db, a, b, d = da[16:], db[16:], a[16:], b[16:], d[16:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func getShort(a []uint16) floats16 {
	return archsimd.LoadUint16x16(a).ExtendToUint32().ShiftAllLeft(16).BitsToFloat32()
}

// logistic512 is logistic with AVX-512. As in reduced512, each constant is an argument.
func logistic512(
	x, zero, low, high, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats16,
) floats16 {
	x = zero.Sub(x)
	x = low.IfElse(x.Less(low), x)
	x = high.IfElse(x.Greater(high), x)
	y, power := reduced512(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
	return one.Div(y.Scale(power).Add(one))
}

// reduced512 returns y and n such that exp(x) = y·2ⁿ. Each constant is an argument, because the
// compiler keeps structs of more than four fields in memory.
func reduced512(
	x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats16,
) (y, n floats16) {
	n = x.Mul(factor).Add(shift).Sub(shift)
	r := x.Sub(n.Mul(upper)).Sub(n.Mul(lower))
	p := r.Mul(p0).Add(p1).Mul(r).Add(p2).Mul(r).Add(p3).Mul(r).Add(p4).Mul(r).Add(p5)
	return p.Mul(r.Mul(r)).Add(r).Add(one), n
}
