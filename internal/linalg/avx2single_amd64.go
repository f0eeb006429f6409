//go:build amd64 && goexperiment.simd

package linalg

import "simd/archsimd"

func tile256Single(k int, a, b, c []float32, stride int) {
	var s0, t0 archsimd.Float32x8
	var s1, t1 archsimd.Float32x8
	var s2, t2 archsimd.Float32x8
	var s3, t3 archsimd.Float32x8
	a, b = a[:k*fourRows], b[:k*16]
	for len(a) >= fourRows && len(b) >= 16 {
		row := (*[fourRows]float32)(a)
		x, y := archsimd.LoadFloat32x8Array((*[8]float32)(b)), archsimd.LoadFloat32x8Array((*[8]float32)(b[8:16]))
		v := archsimd.BroadcastFloat32x8(row[0])
		s0, t0 = v.MulAdd(x, s0), v.MulAdd(y, t0)
		v = archsimd.BroadcastFloat32x8(row[1])
		s1, t1 = v.MulAdd(x, s1), v.MulAdd(y, t1)
		v = archsimd.BroadcastFloat32x8(row[2])
		s2, t2 = v.MulAdd(x, s2), v.MulAdd(y, t2)
		v = archsimd.BroadcastFloat32x8(row[3])
		s3, t3 = v.MulAdd(x, s3), v.MulAdd(y, t3)
		a, b = a[fourRows:], b[16:]
	}
	add256Single(c, s0, t0)
	add256Single(c[stride:], s1, t1)
	add256Single(c[2*stride:], s2, t2)
	add256Single(c[3*stride:], s3, t3)
	archsimd.ClearAVXUpperBits()
}

// add256Single adds a row of a tile.
func add256Single(c []float32, s, t archsimd.Float32x8) {
	lo, hi := (*[8]float32)(c), (*[8]float32)(c[8:])
	archsimd.LoadFloat32x8Array(lo).Add(s).StoreArray(lo)
	archsimd.LoadFloat32x8Array(hi).Add(t).StoreArray(hi)
}

// sum256Single adds the lanes up, always in the same order.
func sum256Single(v *[8]float32) float32 {
	for half := 4; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

func dot256Single(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float32x8
	for len(x) >= 32 && len(y) >= 32 {
		s0 = archsimd.LoadFloat32x8Array((*[8]float32)(x)).MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(y)), s0)
		s1 = archsimd.LoadFloat32x8Array((*[8]float32)(x[8:])).MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(y[8:])), s1)
		s2 = archsimd.LoadFloat32x8Array((*[8]float32)(x[16:])).MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(y[16:])), s2)
		s3 = archsimd.LoadFloat32x8Array((*[8]float32)(x[24:])).MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(y[24:])), s3)
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		s0 = archsimd.LoadFloat32x8Array((*[8]float32)(x)).MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(y)), s0)
		x, y = x[8:], y[8:]
	}
	var lanes [8]float32
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum256Single(&lanes), x, y)
}

func axpy256Single(alpha float32, x, y []float32) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat32x8(alpha)
	for len(x) >= 8 && len(y) >= 8 {
		at := (*[8]float32)(y)
		a.MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(x)), archsimd.LoadFloat32x8Array(at)).StoreArray(at)
		x, y = x[8:], y[8:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func few256(y, x, w MatrixOf[float32]) { fewByRows(y, x, w, dot256Single) }

func fewHalves256(y, x MatrixOf[float32], w Halves) { fewHalvesByRows(y, x, w, dot256Single) }

func mix256(y, x []float32, m MatrixOf[float32]) {
	j := 0
	for ; j+32 <= len(y); j += 32 {
		var s0, s1, s2, s3 archsimd.Float32x8
		for i, v := range x {
			a, row := archsimd.BroadcastFloat32x8(v), (*[32]float32)(m.Data[i*m.RowStride+j:])
			s0 = a.MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(row[:8])), s0)
			s1 = a.MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(row[8:])), s1)
			s2 = a.MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(row[16:])), s2)
			s3 = a.MulAdd(archsimd.LoadFloat32x8Array((*[8]float32)(row[24:])), s3)
		}
		to := (*[32]float32)(y[j:])
		s0.StoreArray((*[8]float32)(to[:8]))
		s1.StoreArray((*[8]float32)(to[8:]))
		s2.StoreArray((*[8]float32)(to[16:]))
		s3.StoreArray((*[8]float32)(to[24:]))
	}
	archsimd.ClearAVXUpperBits()
	mixFrom(j, y, x, m, axpy256Single)
}
