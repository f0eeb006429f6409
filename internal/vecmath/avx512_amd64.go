//go:build amd64 && goexperiment.simd

package vecmath

import "simd/archsimd"

func exp512(x archsimd.Float32x16) archsimd.Float32x16 {
	all := archsimd.BroadcastFloat32x16
	x = x.Max(all(least)).Min(all(most))
	n := x.Mul(all(log2e)).RoundScaled(0)
	r := n.MulAdd(all(-log2Upper), x)
	r = n.MulAdd(all(-log2Lower), r)
	p := all(p0).MulAdd(r, all(p1))
	p = p.MulAdd(r, all(p2))
	p = p.MulAdd(r, all(p3))
	p = p.MulAdd(r, all(p4))
	p = p.MulAdd(r, all(p5))
	return p.MulAdd(r.Mul(r), r).Add(all(1)).Scale(n)
}

func exps512(x []float32, shift, scale float32) float32 {
	a, b := archsimd.BroadcastFloat32x16(shift), archsimd.BroadcastFloat32x16(scale)
	var sums archsimd.Float32x16
	for len(x) >= 16 {
		at := (*[16]float32)(x)
		e := exp512(archsimd.LoadFloat32x16Array(at).Sub(a).Mul(b))
		e.StoreArray(at)
		sums = sums.Add(e)
		x = x[16:]
	}
	var lanes [16]float32
	if len(x) > 0 {
		copy(lanes[:], x)
		exp512(archsimd.LoadFloat32x16Array(&lanes).Sub(a).Mul(b)).StoreArray(&lanes)
		copy(x, lanes[:])
		clear(lanes[len(x):])
		sums = sums.Add(archsimd.LoadFloat32x16Array(&lanes))
	}
	sums.StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return total(lanes[:])
}

func swiGLU512(a, b []float32) {
	one := archsimd.BroadcastFloat32x16(1)
	var zero archsimd.Float32x16
	gated := func(x, y *[16]float32) {
		v := archsimd.LoadFloat32x16Array(x)
		v.Div(one.Add(exp512(zero.Sub(v)))).Mul(archsimd.LoadFloat32x16Array(y)).StoreArray(x)
	}
	for len(a) >= 16 && len(b) >= 16 {
		gated((*[16]float32)(a), (*[16]float32)(b))
		a, b = a[16:], b[16:]
	}
	if len(a) > 0 {
		var x, y [16]float32
		copy(x[:], a)
		copy(y[:], b)
		gated(&x, &y)
		copy(a, x[:])
	}
	archsimd.ClearAVXUpperBits()
}
