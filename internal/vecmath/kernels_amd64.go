//go:build amd64 && goexperiment.simd

package vecmath

import "simd/archsimd"

// supported lists the kernels that run here, the fastest first.
func supported() []kernels {
	var all []kernels
	if archsimd.X86.AVX512() {
		all = append(all, kernels{"AVX-512", exps512, swiGLU512})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		all = append(all, kernels{"AVX2", exps256, swiGLU256})
	}
	return append(all, portable)
}
