//go:build amd64 && goexperiment.simd

package linalg

import "simd/archsimd"

// supported lists the kernels that run here, the fastest first.
func supported() []kernels {
	var all []kernels
	if archsimd.X86.AVX512() {
		// Divisions of twice as many numbers take twice as long: gaps and quotients would gain nothing.
		all = append(all, kernels{"AVX-512", vectors[float64]{8, 16, tile512, dot512, axpy512}, vectors[float32]{8, 32, tile512Single, dot512Single, axpy512Single}, four512, few512, fewHalves512, true, mix512, secular512, gaps256, quotients256})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		all = append(all, kernels{"AVX2", vectors[float64]{fourRows, 8, tile256, dot256, axpy256}, vectors[float32]{fourRows, 16, tile256Single, dot256Single, axpy256Single}, four256, few256, fewHalves256, false, mix256, secular256, gaps256, quotients256})
	}
	return append(all, portable)
}
