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

// turnNeighbours512 turns sixteen points at a time, and those of all pieces with the same angles one after the other. It returns how many
// points of each piece are done.
func turnNeighbours512(dst, x, cos, sin []float32, back bool) int {
	n := len(cos)
	signs := archsimd.BroadcastUint64x8(1 << 31).ReshapeToUint32s() // of first coordinates
	if back {
		signs = archsimd.BroadcastUint64x8(1 << 63).ReshapeToUint32s()
	}
	exchanged := archsimd.LoadUint32x16Array(&[16]uint32{1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14})
	lower := archsimd.LoadUint32x16Array(&[16]uint32{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7})
	upper := lower.Or(archsimd.BroadcastUint32x16(8))
	i := 0
	for ; i+16 <= n; i += 16 {
		c, s := get16(cos[i:]), get16(sin[i:])
		c0, c1 := c.Permute(lower), c.Permute(upper)
		s0, s1 := s.Permute(lower).ToBits().Xor(signs).BitsToFloat32(), s.Permute(upper).ToBits().Xor(signs).BitsToFloat32()
		for at := 2 * i; at+32 <= len(x) && at+32 <= len(dst); at += 2 * n {
			a, b := get16(x[at:]), get16(x[at+16:])
			a.Mul(c0).Add(a.Permute(exchanged).Mul(s0)).Store(dst[at:])
			b.Mul(c1).Add(b.Permute(exchanged).Mul(s1)).Store(dst[at+16:])
		}
	}
	archsimd.ClearAVXUpperBits()
	return i
}
