//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

var (
	hasAVX    = archsimd.X86.AVX()
	hasAVX2   = archsimd.X86.AVX2() && archsimd.X86.FMA()
	hasAVX512 = hasAVX2 && archsimd.X86.AVX512()
)

// Vectors names the vector instructions that loops use on this processor: "avx512", "avx2" or
// "none".
func Vectors() string {
	switch {
	case hasAVX512:
		return "avx512"
	case hasAVX2:
		return "avx2"
	}
	return "none"
}

// LacksVectors reports whether this build lacks vector instructions that its architecture has.
func LacksVectors() bool { return false }

type (
	floats8  = archsimd.Float32x8
	floats16 = archsimd.Float32x16
)

func get(a []float32) floats8    { return archsimd.LoadFloat32x8(a) }
func get16(a []float32) floats16 { return archsimd.LoadFloat32x16(a) }

// done ends a loop over vectors. It clears the upper halves of registers; otherwise the next scalar
// float operation takes as long as a hundred others.
func done() {
	if hasAVX {
		archsimd.ClearAVXUpperBits()
	}
}
