//go:build amd64 && goexperiment.simd

package linalg

import "simd/archsimd"

// supported lists the kernels that run here, the fastest first.
func supported() []kernels {
	var all []kernels
	if archsimd.X86.AVX512() {
		all = append(all, kernels{"AVX-512", 16, tile512, dot512, axpy512, four512, secular512, gaps512, quotients512})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		all = append(all, kernels{"AVX2", 8, tile256, dot256, axpy256, four256, secular256, gaps256, quotients256})
	}
	return append(all, portable)
}
