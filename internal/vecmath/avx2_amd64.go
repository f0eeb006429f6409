//go:build amd64 && goexperiment.simd

package vecmath

import "simd/archsimd"

func exp256(x archsimd.Float32x8) archsimd.Float32x8 {
	all := archsimd.BroadcastFloat32x8
	x = x.Max(all(least)).Min(all(most))
	n := x.Mul(all(log2e)).Round()
	r := n.MulAdd(all(-log2Upper), x)
	r = n.MulAdd(all(-log2Lower), r)
	p := all(p0).MulAdd(r, all(p1))
	p = p.MulAdd(r, all(p2))
	p = p.MulAdd(r, all(p3))
	p = p.MulAdd(r, all(p4))
	p = p.MulAdd(r, all(p5))
	power := n.ConvertToInt32().Add(archsimd.BroadcastInt32x8(127)).ShiftAllLeft(23) // the bits of 2ⁿ
	return p.MulAdd(r.Mul(r), r).Add(all(1)).Mul(power.ToBits().BitsToFloat32())
}

func exps256(x []float32, shift, scale float32) float32 {
	a, b := archsimd.BroadcastFloat32x8(shift), archsimd.BroadcastFloat32x8(scale)
	var sums archsimd.Float32x8
	for len(x) >= 8 {
		at := (*[8]float32)(x)
		e := exp256(archsimd.LoadFloat32x8Array(at).Sub(a).Mul(b))
		e.StoreArray(at)
		sums = sums.Add(e)
		x = x[8:]
	}
	var lanes [8]float32
	if len(x) > 0 {
		copy(lanes[:], x)
		exp256(archsimd.LoadFloat32x8Array(&lanes).Sub(a).Mul(b)).StoreArray(&lanes)
		copy(x, lanes[:])
		clear(lanes[len(x):])
		sums = sums.Add(archsimd.LoadFloat32x8Array(&lanes))
	}
	sums.StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return total(lanes[:])
}

func swiGLU256(a, b []float32) {
	one := archsimd.BroadcastFloat32x8(1)
	var zero archsimd.Float32x8
	gated := func(x, y *[8]float32) {
		v := archsimd.LoadFloat32x8Array(x)
		v.Div(one.Add(exp256(zero.Sub(v)))).Mul(archsimd.LoadFloat32x8Array(y)).StoreArray(x)
	}
	for len(a) >= 8 && len(b) >= 8 {
		gated((*[8]float32)(a), (*[8]float32)(b))
		a, b = a[8:], b[8:]
	}
	if len(a) > 0 {
		var x, y [8]float32
		copy(x[:], a)
		copy(y[:], b)
		gated(&x, &y)
		copy(a, x[:])
	}
	archsimd.ClearAVXUpperBits()
}
