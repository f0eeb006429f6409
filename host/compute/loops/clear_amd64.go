//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

var hasAVX = archsimd.X86.AVX()

// done ends a loop over vectors: where the upper halves of registers are not zero, the next operation on a single float takes
// as long as a hundred others.
func done() {
	if hasAVX {
		archsimd.ClearAVXUpperBits()
	}
}
