//go:build amd64 && goexperiment.simd

package digest

import "simd/archsimd"

var wide = archsimd.X86.AVX()

// clearUpperHalves clears the upper halves of the vector registers, if the processor has any.
func clearUpperHalves() {
	if wide {
		archsimd.ClearAVXUpperBits()
	}
}
