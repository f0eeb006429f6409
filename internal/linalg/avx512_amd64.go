//go:build amd64 && goexperiment.simd

package linalg

import (
	"simd/archsimd"
	"unsafe"
)

// tile512 is a tile of 8 rows of 16.
func tile512(k int, a, b, c []float64, stride int) {
	checkTile(k, a, b, c, stride, 8, 16)
	tile8x16(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x16(k int, a, b, c *float64, stride int)

// checkTile panics where the assembler would leave a slice.
func checkTile[T Float](k int, a, b, c []T, stride, rows, cols int) {
	_, _, _ = a[:k*rows], b[:k*cols], c[:(rows-1)*stride+cols]
}

// sum512 adds the lanes up, always in the same order.
func sum512(v *[8]float64) float64 {
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
}

func dot512(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float64x8
	for len(x) >= 32 && len(y) >= 32 {
		s0 = archsimd.LoadFloat64x8Array((*[8]float64)(x)).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y)), s0)
		s1 = archsimd.LoadFloat64x8Array((*[8]float64)(x[8:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[8:])), s1)
		s2 = archsimd.LoadFloat64x8Array((*[8]float64)(x[16:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[16:])), s2)
		s3 = archsimd.LoadFloat64x8Array((*[8]float64)(x[24:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[24:])), s3)
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		s0 = archsimd.LoadFloat64x8Array((*[8]float64)(x)).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y)), s0)
		x, y = x[8:], y[8:]
	}
	var lanes [8]float64
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum512(&lanes), x, y)
}

func axpy512(alpha float64, x, y []float64) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat64x8(alpha)
	for len(x) >= 8 && len(y) >= 8 {
		at := (*[8]float64)(y)
		a.MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(x)), archsimd.LoadFloat64x8Array(at)).StoreArray(at)
		x, y = x[8:], y[8:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func four512(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) [4]float64 {
	n := len(a0)
	a1, a2, a3, x, y = a1[:n], a2[:n], a3[:n], x[:n], y[:n]
	b0, b1 := archsimd.BroadcastFloat64x8(alpha[0]), archsimd.BroadcastFloat64x8(alpha[1])
	b2, b3 := archsimd.BroadcastFloat64x8(alpha[2]), archsimd.BroadcastFloat64x8(alpha[3])
	var s0, s1, s2, s3 archsimd.Float64x8
	i := 0
	for ; i+8 <= n; i += 8 {
		v, at := archsimd.LoadFloat64x8Array((*[8]float64)(x[i:])), (*[8]float64)(y[i:])
		w := archsimd.LoadFloat64x8Array(at)
		r := archsimd.LoadFloat64x8Array((*[8]float64)(a0[i:]))
		s0, w = r.MulAdd(v, s0), r.MulAdd(b0, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a1[i:]))
		s1, w = r.MulAdd(v, s1), r.MulAdd(b1, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a2[i:]))
		s2, w = r.MulAdd(v, s2), r.MulAdd(b2, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a3[i:]))
		s3, w = r.MulAdd(v, s3), r.MulAdd(b3, w)
		w.StoreArray(at)
	}
	var lanes [4][8]float64
	s0.StoreArray(&lanes[0])
	s1.StoreArray(&lanes[1])
	s2.StoreArray(&lanes[2])
	s3.StoreArray(&lanes[3])
	archsimd.ClearAVXUpperBits()
	sum := fourPortable(a0[i:], a1[i:], a2[i:], a3[i:], x[i:], y[i:], alpha)
	for i := range lanes {
		sum[i] += sum512(&lanes[i])
	}
	return sum
}

func secular512(poles, z []float64, origin, mu float64) (value, slope float64) {
	z = z[:len(poles)]
	o, m := archsimd.BroadcastFloat64x8(origin), archsimd.BroadcastFloat64x8(mu)
	var s0, s1 archsimd.Float64x8
	for len(poles) >= 8 && len(z) >= 8 {
		v := archsimd.LoadFloat64x8Array((*[8]float64)(z))
		t := v.Div(archsimd.LoadFloat64x8Array((*[8]float64)(poles)).Sub(o).Sub(m))
		s0, s1 = v.MulAdd(t, s0), t.MulAdd(t, s1)
		poles, z = poles[8:], z[8:]
	}
	var values, slopes [8]float64
	s0.StoreArray(&values)
	s1.StoreArray(&slopes)
	archsimd.ClearAVXUpperBits()
	value, slope = secularPortable(poles, z, origin, mu)
	return value + sum512(&values), slope + sum512(&slopes)
}
