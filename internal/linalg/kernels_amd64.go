//go:build amd64 && goexperiment.simd

package linalg

import (
	"simd"
	"simd/archsimd"
)

// supported lists the kernels for this processor, the fastest first. The AVX-512 and AVX2 kernels
// differ only in the tiles of products; all other loops use the processor's vector width.
func supported() []kernels {
	if !archsimd.X86.AVX2() || !archsimd.X86.FMA() {
		return []kernels{portable}
	}
	k := kernels{
		"AVX2", vectors[float64]{fourRows, 8, tile256, dot256, axpyDouble},
		vectors[float32]{fourRows, 16, tile256Single, dot256Single, axpySingle},
		fourVectors, func(y, x, w MatrixOf[float32]) { fewByRows(y, x, w, dot256Single) }, nil,
		secularVectors,
	}
	if archsimd.X86.AVX512() {
		k.name, k.few, k.fewBFloat16 = "AVX-512", few512, few512BFloat16
		k.double.tileRows, k.double.tileCols, k.double.tile = 8, 16, tile512
		k.double.dot, k.single.dot = dot512, dot512Single
		k.single.tileRows, k.single.tileCols, k.single.tile = 8, 32, tile512Single
	}
	return []kernels{k, portable}
}

// sumDouble returns the sum of the lanes of a vector, by adding halves repeatedly.
func sumDouble(v []float64) float64 {
	if len(v) == 4 {
		return (v[0] + v[2]) + (v[1] + v[3])
	}
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
}

func sumSingle(v []float32) float32 {
	for half := len(v) / 2; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

func axpyDouble(alpha float64, x, y []float64) {
	y = y[:len(x)]
	width, i := simd.Float64s{}.Len(), 0
	for a := simd.BroadcastFloat64s(alpha); i <= len(x)-width; i += width {
		a.MulAdd(simd.LoadFloat64s(x[i:]), simd.LoadFloat64s(y[i:])).Store(y[i:])
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x[i:], y[i:])
}

func axpySingle(alpha float32, x, y []float32) {
	y = y[:len(x)]
	width, i := simd.Float32s{}.Len(), 0
	for a := simd.BroadcastFloat32s(alpha); i <= len(x)-width; i += width {
		a.MulAdd(simd.LoadFloat32s(x[i:]), simd.LoadFloat32s(y[i:])).Store(y[i:])
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x[i:], y[i:])
}

func fourVectors(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) [4]float64 {
	n := len(a0)
	a1, a2, a3, x, y = a1[:n], a2[:n], a3[:n], x[:n], y[:n]
	b0, b1 := simd.BroadcastFloat64s(alpha[0]), simd.BroadcastFloat64s(alpha[1])
	b2, b3 := simd.BroadcastFloat64s(alpha[2]), simd.BroadcastFloat64s(alpha[3])
	var s0, s1, s2, s3 simd.Float64s
	width, i := s0.Len(), 0
	for ; i <= len(a0)-width; i += width {
		v, w := simd.LoadFloat64s(x[i:]), simd.LoadFloat64s(y[i:])
		r := simd.LoadFloat64s(a0[i:])
		s0, w = r.MulAdd(v, s0), r.MulAdd(b0, w)
		r = simd.LoadFloat64s(a1[i:])
		s1, w = r.MulAdd(v, s1), r.MulAdd(b1, w)
		r = simd.LoadFloat64s(a2[i:])
		s2, w = r.MulAdd(v, s2), r.MulAdd(b2, w)
		r = simd.LoadFloat64s(a3[i:])
		s3, w = r.MulAdd(v, s3), r.MulAdd(b3, w)
		w.Store(y[i:])
	}
	var lanes [4][8]float64
	s0.Store(lanes[0][:])
	s1.Store(lanes[1][:])
	s2.Store(lanes[2][:])
	s3.Store(lanes[3][:])
	archsimd.ClearAVXUpperBits()
	sum := fourPortable(a0[i:], a1[i:], a2[i:], a3[i:], x[i:], y[i:], alpha)
	for i := range lanes {
		sum[i] += sumDouble(lanes[i][:width])
	}
	return sum
}

func secularVectors(poles, z []float64, origin, mu float64) (value, slope float64) {
	z = z[:len(poles)]
	o, m := simd.BroadcastFloat64s(origin), simd.BroadcastFloat64s(mu)
	var s0, s1 simd.Float64s
	width, i := s0.Len(), 0
	for ; i <= len(poles)-width; i += width {
		v := simd.LoadFloat64s(z[i:])
		t := v.Div(simd.LoadFloat64s(poles[i:]).Sub(o).Sub(m))
		s0, s1 = v.MulAdd(t, s0), t.MulAdd(t, s1)
	}
	var values, slopes [8]float64
	s0.Store(values[:])
	s1.Store(slopes[:])
	archsimd.ClearAVXUpperBits()
	value, slope = secularPortable(poles[i:], z[i:], origin, mu)
	return value + sumDouble(values[:width]), slope + sumDouble(slopes[:width])
}
