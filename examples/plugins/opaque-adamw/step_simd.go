//go:build goexperiment.simd && amd64

package main

import "simd/archsimd"

// step computes a step eight elements at a time, with the same roundings as scalar.
func (f factors) step(g, m, v, nextM, nextV, u []float32) {
	whole := len(g) &^ 7
	if !archsimd.X86.AVX2() {
		whole = 0
	}
	all := archsimd.BroadcastFloat32x8
	beta1, beta2, rest1, rest2, root, eps := all(f.beta1), all(f.beta2), all(f.rest1), all(f.rest2),
		all(f.root), all(f.eps)
	for i := 0; i < whole; i += 8 {
		g := archsimd.LoadFloat32x8(g[i : i+8])
		m := archsimd.LoadFloat32x8(m[i : i+8]).Mul(beta1).Add(g.Mul(rest1))
		v := archsimd.LoadFloat32x8(v[i : i+8]).Mul(beta2).Add(g.Mul(g).Mul(rest2))
		m.Store(nextM[i : i+8])
		v.Store(nextV[i : i+8])
		m.Div(v.Sqrt().Mul(root).Add(eps)).Store(u[i : i+8])
	}
	f.scalar(g[whole:], m[whole:], v[whole:], nextM[whole:], nextV[whole:], u[whole:])
}
