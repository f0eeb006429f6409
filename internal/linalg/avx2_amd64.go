//go:build amd64 && goexperiment.simd

package linalg

import "simd/archsimd"

func tile256(k int, a, b, c []float64, stride int) {
	var s0, t0 archsimd.Float64x4
	var s1, t1 archsimd.Float64x4
	var s2, t2 archsimd.Float64x4
	var s3, t3 archsimd.Float64x4
	a, b = a[:k*fourRows], b[:k*8]
	for len(a) >= fourRows && len(b) >= 8 {
		row := (*[fourRows]float64)(a)
		x, y := archsimd.LoadFloat64x4Array((*[4]float64)(b)), archsimd.LoadFloat64x4Array((*[4]float64)(b[4:8]))
		v := archsimd.BroadcastFloat64x4(row[0])
		s0, t0 = v.MulAdd(x, s0), v.MulAdd(y, t0)
		v = archsimd.BroadcastFloat64x4(row[1])
		s1, t1 = v.MulAdd(x, s1), v.MulAdd(y, t1)
		v = archsimd.BroadcastFloat64x4(row[2])
		s2, t2 = v.MulAdd(x, s2), v.MulAdd(y, t2)
		v = archsimd.BroadcastFloat64x4(row[3])
		s3, t3 = v.MulAdd(x, s3), v.MulAdd(y, t3)
		a, b = a[fourRows:], b[8:]
	}
	add256(c, s0, t0)
	add256(c[stride:], s1, t1)
	add256(c[2*stride:], s2, t2)
	add256(c[3*stride:], s3, t3)
	archsimd.ClearAVXUpperBits()
}

// add256 adds a row of a tile.
func add256(c []float64, s, t archsimd.Float64x4) {
	lo, hi := (*[4]float64)(c), (*[4]float64)(c[4:])
	archsimd.LoadFloat64x4Array(lo).Add(s).StoreArray(lo)
	archsimd.LoadFloat64x4Array(hi).Add(t).StoreArray(hi)
}

// sum256 adds the lanes up, always in the same order.
func sum256(v *[4]float64) float64 {
	return (v[0] + v[2]) + (v[1] + v[3])
}

func dot256(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float64x4
	for len(x) >= 16 && len(y) >= 16 {
		s0 = archsimd.LoadFloat64x4Array((*[4]float64)(x)).MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(y)), s0)
		s1 = archsimd.LoadFloat64x4Array((*[4]float64)(x[4:])).MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(y[4:])), s1)
		s2 = archsimd.LoadFloat64x4Array((*[4]float64)(x[8:])).MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(y[8:])), s2)
		s3 = archsimd.LoadFloat64x4Array((*[4]float64)(x[12:])).MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(y[12:])), s3)
		x, y = x[16:], y[16:]
	}
	for len(x) >= 4 && len(y) >= 4 {
		s0 = archsimd.LoadFloat64x4Array((*[4]float64)(x)).MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(y)), s0)
		x, y = x[4:], y[4:]
	}
	var lanes [4]float64
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum256(&lanes), x, y)
}

func axpy256(alpha float64, x, y []float64) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat64x4(alpha)
	for len(x) >= 4 && len(y) >= 4 {
		at := (*[4]float64)(y)
		a.MulAdd(archsimd.LoadFloat64x4Array((*[4]float64)(x)), archsimd.LoadFloat64x4Array(at)).StoreArray(at)
		x, y = x[4:], y[4:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func four256(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) [4]float64 {
	n := len(a0)
	a1, a2, a3, x, y = a1[:n], a2[:n], a3[:n], x[:n], y[:n]
	b0, b1 := archsimd.BroadcastFloat64x4(alpha[0]), archsimd.BroadcastFloat64x4(alpha[1])
	b2, b3 := archsimd.BroadcastFloat64x4(alpha[2]), archsimd.BroadcastFloat64x4(alpha[3])
	var s0, s1, s2, s3 archsimd.Float64x4
	i := 0
	for ; i+4 <= n; i += 4 {
		v, at := archsimd.LoadFloat64x4Array((*[4]float64)(x[i:])), (*[4]float64)(y[i:])
		w := archsimd.LoadFloat64x4Array(at)
		r := archsimd.LoadFloat64x4Array((*[4]float64)(a0[i:]))
		s0, w = r.MulAdd(v, s0), r.MulAdd(b0, w)
		r = archsimd.LoadFloat64x4Array((*[4]float64)(a1[i:]))
		s1, w = r.MulAdd(v, s1), r.MulAdd(b1, w)
		r = archsimd.LoadFloat64x4Array((*[4]float64)(a2[i:]))
		s2, w = r.MulAdd(v, s2), r.MulAdd(b2, w)
		r = archsimd.LoadFloat64x4Array((*[4]float64)(a3[i:]))
		s3, w = r.MulAdd(v, s3), r.MulAdd(b3, w)
		w.StoreArray(at)
	}
	var lanes [4][4]float64
	s0.StoreArray(&lanes[0])
	s1.StoreArray(&lanes[1])
	s2.StoreArray(&lanes[2])
	s3.StoreArray(&lanes[3])
	archsimd.ClearAVXUpperBits()
	sum := fourPortable(a0[i:], a1[i:], a2[i:], a3[i:], x[i:], y[i:], alpha)
	for i := range lanes {
		sum[i] += sum256(&lanes[i])
	}
	return sum
}

func secular256(poles, z []float64, origin, mu float64) (value, slope float64) {
	z = z[:len(poles)]
	o, m := archsimd.BroadcastFloat64x4(origin), archsimd.BroadcastFloat64x4(mu)
	var s0, s1 archsimd.Float64x4
	for len(poles) >= 4 && len(z) >= 4 {
		v := archsimd.LoadFloat64x4Array((*[4]float64)(z))
		t := v.Div(archsimd.LoadFloat64x4Array((*[4]float64)(poles)).Sub(o).Sub(m))
		s0, s1 = v.MulAdd(t, s0), t.MulAdd(t, s1)
		poles, z = poles[4:], z[4:]
	}
	var values, slopes [4]float64
	s0.StoreArray(&values)
	s1.StoreArray(&slopes)
	archsimd.ClearAVXUpperBits()
	value, slope = secularPortable(poles, z, origin, mu)
	return value + sum256(&values), slope + sum256(&slopes)
}

func gaps256(out, weights, poles []float64, origin, mu, pole float64) {
	n := len(out)
	weights, poles = weights[:n], poles[:n]
	o, m, p := archsimd.BroadcastFloat64x4(origin), archsimd.BroadcastFloat64x4(mu), archsimd.BroadcastFloat64x4(pole)
	i := 0
	for ; i+4 <= n; i += 4 {
		d, at := archsimd.LoadFloat64x4Array((*[4]float64)(poles[i:])), (*[4]float64)(weights[i:])
		gap := d.Sub(o).Sub(m)
		gap.StoreArray((*[4]float64)(out[i:]))
		archsimd.LoadFloat64x4Array(at).Mul(gap.Div(d.Sub(p))).StoreArray(at)
	}
	archsimd.ClearAVXUpperBits()
	gapsPortable(out[i:], weights[i:], poles[i:], origin, mu, pole)
}

func quotients256(x, w []float64) {
	w = w[:len(x)]
	for len(x) >= 4 && len(w) >= 4 {
		at := (*[4]float64)(x)
		archsimd.LoadFloat64x4Array((*[4]float64)(w)).Div(archsimd.LoadFloat64x4Array(at)).StoreArray(at)
		x, w = x[4:], w[4:]
	}
	archsimd.ClearAVXUpperBits()
	quotientsPortable(x, w)
}

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
