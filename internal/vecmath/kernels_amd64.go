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

// total adds up the lanes of a vector, always in the same order.
func total(lanes []float32) float32 {
	for half := len(lanes) / 2; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}
