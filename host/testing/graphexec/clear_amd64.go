//go:build amd64 && goexperiment.simd

package graphexec

import "simd/archsimd"

var wide = archsimd.X86.AVX()

// clearUpperHalves clears the upper halves of the vector registers, if the processor has any. With
// SIMD, Go 1.27 leaves them in use after it preempts a goroutine, and then functions such as
// [math.Exp] take up to a hundred times as long.
func clearUpperHalves() {
	if wide {
		archsimd.ClearAVXUpperBits()
	}
}
