//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// longSums adds up groups whose size is 16, 32 or a multiple of 64: elements of a, or their products with those of b if b is not nil. The
// last two numbers of each group are added when no vectors are in use any more.
func longSums(dst, a, b []float32, size int) {
	var last [64][2]float64
	var zero archsimd.Float32x8
	for len(dst) > 0 {
		n := min(len(dst), len(last))
		for g := range n {
			group := a[g*size : (g+1)*size]
			other := []float32(nil)
			if b != nil {
				other = b[g*size : (g+1)*size]
			}
			switch {
			case size == 16:
				total(&last[g], times(group, other, 0), zero, times(group, other, 8), zero)
			case size == 32:
				total(&last[g], times(group, other, 0), times(group, other, 8), times(group, other, 16), times(group, other, 24))
			case b == nil:
				sum64(&last[g], group)
			default:
				sumMul64(&last[g], group, other)
			}
		}
		archsimd.ClearAVXUpperBits()
		for g, l := range last[:n] {
			dst[g] = float32(l[0]+l[1]) + 0 // a zero gets the positive sign
		}
		dst, a = dst[n:], a[n*size:]
		if b != nil {
			b = b[n*size:]
		}
	}
}

// times are elements of a from the given one on, or their products with those of b.
func times(a, b []float32, at int) floats8 {
	if b == nil {
		return get(a[at : at+8])
	}
	return get(a[at : at+8]).Mul(get(b[at : at+8]))
}

func sum64(last *[2]float64, a []float32) {
	var v0, v1, v2, v3, v4, v5, v6, v7 archsimd.Float32x8
	for len(a) >= 64 {
		x := (*[64]float32)(a)
		v0 = v0.Add(archsimd.LoadFloat32x8(x[0:8]))
		v1 = v1.Add(archsimd.LoadFloat32x8(x[8:16]))
		v2 = v2.Add(archsimd.LoadFloat32x8(x[16:24]))
		v3 = v3.Add(archsimd.LoadFloat32x8(x[24:32]))
		v4 = v4.Add(archsimd.LoadFloat32x8(x[32:40]))
		v5 = v5.Add(archsimd.LoadFloat32x8(x[40:48]))
		v6 = v6.Add(archsimd.LoadFloat32x8(x[48:56]))
		v7 = v7.Add(archsimd.LoadFloat32x8(x[56:64]))
		a = a[64:]
	}
	total(last, v0.Add(v4), v1.Add(v5), v2.Add(v6), v3.Add(v7))
}

func sumMul64(last *[2]float64, a, b []float32) {
	var v0, v1, v2, v3, v4, v5, v6, v7 archsimd.Float32x8
	for len(a) >= 64 && len(b) >= 64 {
		x, y := (*[64]float32)(a), (*[64]float32)(b)
		v0 = v0.Add(archsimd.LoadFloat32x8(x[0:8]).Mul(archsimd.LoadFloat32x8(y[0:8])))
		v1 = v1.Add(archsimd.LoadFloat32x8(x[8:16]).Mul(archsimd.LoadFloat32x8(y[8:16])))
		v2 = v2.Add(archsimd.LoadFloat32x8(x[16:24]).Mul(archsimd.LoadFloat32x8(y[16:24])))
		v3 = v3.Add(archsimd.LoadFloat32x8(x[24:32]).Mul(archsimd.LoadFloat32x8(y[24:32])))
		v4 = v4.Add(archsimd.LoadFloat32x8(x[32:40]).Mul(archsimd.LoadFloat32x8(y[32:40])))
		v5 = v5.Add(archsimd.LoadFloat32x8(x[40:48]).Mul(archsimd.LoadFloat32x8(y[40:48])))
		v6 = v6.Add(archsimd.LoadFloat32x8(x[48:56]).Mul(archsimd.LoadFloat32x8(y[48:56])))
		v7 = v7.Add(archsimd.LoadFloat32x8(x[56:64]).Mul(archsimd.LoadFloat32x8(y[56:64])))
		a, b = a[64:], b[64:]
	}
	total(last, v0.Add(v4), v1.Add(v5), v2.Add(v6), v3.Add(v7))
}

// total folds 32 lanes to 8, and these in binary64 to two.
func total(last *[2]float64, v0, v1, v2, v3 archsimd.Float32x8) {
	v0 = v0.Add(v2).Add(v1.Add(v3))
	pairs := v0.GetLo().ConvertToFloat64().Add(v0.GetHi().ConvertToFloat64())
	pairs.GetLo().Add(pairs.GetHi()).StoreArray(last)
}
