//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// Permutations of a vector that swap the elements of each pair, or duplicate each number of one
// half of a vector.
var (
	exchanged  = [8]uint32{1, 0, 3, 2, 5, 4, 7, 6}
	twiceLower = [8]uint32{0, 0, 1, 1, 2, 2, 3, 3}
	twiceUpper = [8]uint32{4, 4, 5, 5, 6, 6, 7, 7}
)

// ropeAdjacent rotates the pairs of the first piece, eight at a time.
func ropeAdjacent(dst, x, cos, sin []float32, back bool) (i int) {
	if !hasAVX2 {
		return 0
	}
	sign := [8]float32{-1, 1, -1, 1, -1, 1, -1, 1}
	if back {
		sign = [8]float32{1, -1, 1, -1, 1, -1, 1, -1}
	}
	signs := archsimd.LoadFloat32x8Array(&sign)
	swap := archsimd.LoadUint32x8Array(&exchanged)
	lower, upper := archsimd.LoadUint32x8Array(&twiceLower), archsimd.LoadUint32x8Array(&twiceUpper)
	for ; i <= len(cos)-8; i += 8 {
		c, s, p, q := get(cos[i:]), get(sin[i:]), get(x[2*i:]), get(x[2*i+8:])
		p.Mul(c.Permute(lower)).Add(p.Permute(swap).Mul(s.Permute(lower).Mul(signs))).Store(dst[2*i:])
		q.Mul(c.Permute(upper)).Add(q.Permute(swap).Mul(s.Permute(upper).Mul(signs))).Store(dst[2*i+8:])
	}
	done()
	return i
}
