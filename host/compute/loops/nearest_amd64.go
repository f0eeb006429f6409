//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// count counts the bounds below each element, 32 elements at a time; the count for an element that
// is not finite is 0. It returns the number of elements done.
func (s *steps) count(dst []int32, x []float32) int {
	if !hasAVX2 {
		return 0
	}
	n := len(x) &^ 31
	for len(x) >= 32 && len(dst) >= 32 {
		from, to := (*[32]float32)(x), (*[32]int32)(dst)
		a, b := archsimd.LoadFloat32x8(from[0:8]), archsimd.LoadFloat32x8(from[8:16])
		c, d := archsimd.LoadFloat32x8(from[16:24]), archsimd.LoadFloat32x8(from[24:32])
		var i, j, k, l archsimd.Int32x8
		for _, v := range s.above {
			bound := archsimd.BroadcastFloat32x8(v)
			i = i.Sub(a.Greater(bound).ToInt32x8())
			j = j.Sub(b.Greater(bound).ToInt32x8())
			k = k.Sub(c.Greater(bound).ToInt32x8())
			l = l.Sub(d.Greater(bound).ToInt32x8())
		}
		finite(a, i).Store(to[0:8])
		finite(b, j).Store(to[8:16])
		finite(c, k).Store(to[16:24])
		finite(d, l).Store(to[24:32])
		x, dst = x[32:], dst[32:]
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func finite(x archsimd.Float32x8, count archsimd.Int32x8) archsimd.Int32x8 {
	return count.Masked(x.Sub(x).Equal(archsimd.Float32x8{}))
}
