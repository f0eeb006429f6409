//go:build amd64 && goexperiment.simd

package linalg

import (
	"simd/archsimd"
	"unsafe"
)

// tile512Single is a tile of 8 rows of 32.
func tile512Single(k int, a, b, c []float32, stride int) {
	checkTile(k, a, b, c, stride, 8, 32)
	tile8x32(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x32(k int, a, b, c *float32, stride int)

// sum512Single adds the lanes up, always in the same order.
func sum512Single(v *[16]float32) float32 {
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

func dot512Single(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float32x16
	for len(x) >= 64 && len(y) >= 64 {
		s0 = archsimd.LoadFloat32x16Array((*[16]float32)(x)).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y)), s0)
		s1 = archsimd.LoadFloat32x16Array((*[16]float32)(x[16:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[16:])), s1)
		s2 = archsimd.LoadFloat32x16Array((*[16]float32)(x[32:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[32:])), s2)
		s3 = archsimd.LoadFloat32x16Array((*[16]float32)(x[48:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[48:])), s3)
		x, y = x[64:], y[64:]
	}
	for len(x) >= 16 && len(y) >= 16 {
		s0 = archsimd.LoadFloat32x16Array((*[16]float32)(x)).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y)), s0)
		x, y = x[16:], y[16:]
	}
	var lanes [16]float32
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum512Single(&lanes), x, y)
}

func axpy512Single(alpha float32, x, y []float32) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat32x16(alpha)
	for len(x) >= 16 && len(y) >= 16 {
		at := (*[16]float32)(y)
		a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(x)), archsimd.LoadFloat32x16Array(at)).StoreArray(at)
		x, y = x[16:], y[16:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func mix512(y, x []float32, m MatrixOf[float32]) {
	j := 0
	for ; j+64 <= len(y); j += 64 {
		var s0, s1, s2, s3 archsimd.Float32x16
		for i, v := range x {
			a, row := archsimd.BroadcastFloat32x16(v), (*[64]float32)(m.Data[i*m.RowStride+j:])
			s0 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[:16])), s0)
			s1 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[16:])), s1)
			s2 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[32:])), s2)
			s3 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[48:])), s3)
		}
		to := (*[64]float32)(y[j:])
		s0.StoreArray((*[16]float32)(to[:16]))
		s1.StoreArray((*[16]float32)(to[16:]))
		s2.StoreArray((*[16]float32)(to[32:]))
		s3.StoreArray((*[16]float32)(to[48:]))
	}
	archsimd.ClearAVXUpperBits()
	mixFrom(j, y, x, m, axpy512Single)
}
