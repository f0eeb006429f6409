//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// Places in a vector: coordinates of a point exchanged, and each number of one half of a vector twice.
var (
	exchanged  = [8]uint32{1, 0, 3, 2, 5, 4, 7, 6}
	twiceLower = [8]uint32{0, 0, 1, 1, 2, 2, 3, 3}
	twiceUpper = [8]uint32{4, 4, 5, 5, 6, 6, 7, 7}
)

// turnNeighbours256 turns eight points at a time, as many as dst has.
func turnNeighbours256(dst, x, cos, sin []float32, back bool) {
	sign := [8]float32{-1, 1, -1, 1, -1, 1, -1, 1}
	if back {
		sign = [8]float32{1, -1, 1, -1, 1, -1, 1, -1}
	}
	signs := archsimd.LoadFloat32x8Array(&sign)
	swap := archsimd.LoadUint32x8Array(&exchanged)
	lower, upper := archsimd.LoadUint32x8Array(&twiceLower), archsimd.LoadUint32x8Array(&twiceUpper)
	for len(dst) >= 16 && len(x) >= 16 && len(cos) >= 8 && len(sin) >= 8 {
		c, s := get(cos), get(sin)
		turnedPairs(get(x), swap, c.Permute(lower), s.Permute(lower).Mul(signs)).Store(dst)
		turnedPairs(get(x[8:]), swap, c.Permute(upper), s.Permute(upper).Mul(signs)).Store(dst[8:])
		dst, x, cos, sin = dst[16:], x[16:], cos[8:], sin[8:]
	}
}

// turnedPairs turns four points. Of the sines, those for first coordinates have the other sign.
func turnedPairs(x floats8, swap archsimd.Uint32x8, c, s floats8) floats8 {
	return x.Mul(c).Add(x.Permute(swap).Mul(s))
}
