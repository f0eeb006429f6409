//go:build amd64 && goexperiment.simd

package linalg

import "simd/archsimd"

func tile512Single(k int, a, b, c []float32, stride int) {
	var s0, t0 archsimd.Float32x16
	var s1, t1 archsimd.Float32x16
	var s2, t2 archsimd.Float32x16
	var s3, t3 archsimd.Float32x16
	a, b = a[:k*tileRows], b[:k*32]
	for len(a) >= tileRows && len(b) >= 32 {
		row := (*[tileRows]float32)(a)
		x, y := archsimd.LoadFloat32x16Array((*[16]float32)(b)), archsimd.LoadFloat32x16Array((*[16]float32)(b[16:32]))
		v := archsimd.BroadcastFloat32x16(row[0])
		s0, t0 = v.MulAdd(x, s0), v.MulAdd(y, t0)
		v = archsimd.BroadcastFloat32x16(row[1])
		s1, t1 = v.MulAdd(x, s1), v.MulAdd(y, t1)
		v = archsimd.BroadcastFloat32x16(row[2])
		s2, t2 = v.MulAdd(x, s2), v.MulAdd(y, t2)
		v = archsimd.BroadcastFloat32x16(row[3])
		s3, t3 = v.MulAdd(x, s3), v.MulAdd(y, t3)
		a, b = a[tileRows:], b[32:]
	}
	add512Single(c, s0, t0)
	add512Single(c[stride:], s1, t1)
	add512Single(c[2*stride:], s2, t2)
	add512Single(c[3*stride:], s3, t3)
}

// add512Single adds a row of a tile.
func add512Single(c []float32, s, t archsimd.Float32x16) {
	lo, hi := (*[16]float32)(c), (*[16]float32)(c[16:])
	archsimd.LoadFloat32x16Array(lo).Add(s).StoreArray(lo)
	archsimd.LoadFloat32x16Array(hi).Add(t).StoreArray(hi)
}

// sum512Single adds the lanes up, always in the same order.
func sum512Single(lanes archsimd.Float32x16) float32 {
	var v [16]float32
	lanes.StoreArray(&v)
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
	sum := sum512Single(s0.Add(s1).Add(s2.Add(s3)))
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

func axpy512Single(alpha float32, x, y []float32) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat32x16(alpha)
	for len(x) >= 16 && len(y) >= 16 {
		at := (*[16]float32)(y)
		a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(x)), archsimd.LoadFloat32x16Array(at)).StoreArray(at)
		x, y = x[16:], y[16:]
	}
	for i, v := range x {
		y[i] += alpha * v
	}
}
