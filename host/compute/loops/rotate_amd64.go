//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// signsOf has a row for each bit of a lane's index, with 1 where the bit is 0 and −1 where it is 1.
var signsOf = [3][8]float32{{1, -1, 1, -1, 1, -1, 1, -1}, {1, 1, -1, -1, 1, 1, -1, -1},
	{1, 1, 1, 1, -1, -1, -1, -1}}

// within applies the butterflies of distances 4, 2 and 1 within a vector. Each multiplies every
// element by its sign and adds the element at that distance. Products with signs are exact.
func within(x, s4, s2, s1 archsimd.Float32x8) archsimd.Float32x8 {
	x = x.MulAdd(s4, x.ConcatPermute128Scalars(1, 0, x))
	x = x.MulAdd(s2, x.ConcatPermuteScalarsGrouped(2, 3, 0, 1, x))
	return x.MulAdd(s1, x.ConcatPermuteScalarsGrouped(1, 0, 3, 2, x))
}

// rotate64s multiplies runs of 64 elements by the scale and the ±1 matrix, with the same
// butterflies as [Rotate].
func rotate64s(dst, a []float32, scale float32) {
	factor := archsimd.BroadcastFloat32x8(scale)
	s1, s2, s4 := archsimd.LoadFloat32x8Array(&signsOf[0]), archsimd.LoadFloat32x8Array(&signsOf[1]),
		archsimd.LoadFloat32x8Array(&signsOf[2])
	for len(dst) >= 64 && len(a) >= 64 {
		to, from := (*[64]float32)(dst), (*[64]float32)(a)
		v0, v1 := pair(from[0:16], factor)
		v2, v3 := pair(from[16:32], factor)
		v4, v5 := pair(from[32:48], factor)
		v6, v7 := pair(from[48:64], factor)
		v0, v1 = within(v0, s4, s2, s1), within(v1, s4, s2, s1)
		v2, v3 = within(v2, s4, s2, s1), within(v3, s4, s2, s1)
		v4, v5 = within(v4, s4, s2, s1), within(v5, s4, s2, s1)
		v6, v7 = within(v6, s4, s2, s1), within(v7, s4, s2, s1)
		v0, v1, v2, v3 = v0.Add(v2), v1.Add(v3), v0.Sub(v2), v1.Sub(v3)
		v4, v5, v6, v7 = v4.Add(v6), v5.Add(v7), v4.Sub(v6), v5.Sub(v7)
		v0.Add(v4).Store(to[0:8])
		v1.Add(v5).Store(to[8:16])
		v2.Add(v6).Store(to[16:24])
		v3.Add(v7).Store(to[24:32])
		v0.Sub(v4).Store(to[32:40])
		v1.Sub(v5).Store(to[40:48])
		v2.Sub(v6).Store(to[48:56])
		v3.Sub(v7).Store(to[56:64])
		dst, a = dst[64:], a[64:]
	}
	archsimd.ClearAVXUpperBits()
}

// pair loads 16 elements, scales them, and returns the sum and the difference of the two halves.
func pair(a []float32, factor archsimd.Float32x8) (x, y archsimd.Float32x8) {
	x, y = archsimd.LoadFloat32x8(a[0:8]).Mul(factor), archsimd.LoadFloat32x8(a[8:16]).Mul(factor)
	return x.Add(y), x.Sub(y)
}

// rotate16s is like rotate64s but for runs of 16.
func rotate16s(dst, a []float32, scale float32) {
	factor := archsimd.BroadcastFloat32x8(scale)
	s1, s2, s4 := archsimd.LoadFloat32x8Array(&signsOf[0]), archsimd.LoadFloat32x8Array(&signsOf[1]),
		archsimd.LoadFloat32x8Array(&signsOf[2])
	for len(dst) >= 16 && len(a) >= 16 {
		to, from := (*[16]float32)(dst), (*[16]float32)(a)
		x, y := pair(from[:], factor)
		within(x, s4, s2, s1).Store(to[0:8])
		within(y, s4, s2, s1).Store(to[8:16])
		dst, a = dst[16:], a[16:]
	}
	archsimd.ClearAVXUpperBits()
}
