//go:build !amd64 || !goexperiment.simd

package loops

import "runtime"

const hasAVX2, hasAVX512 = false, false

func done() {}

func fromBFloat16([]float32, []uint16) int          { return 0 }
func toBFloat16([]uint16, []float32) int            { return 0 }
func toInt8([]int8, []float32) int                  { return 0 }
func fromBools([]float32, []bool) int               { return 0 }
func toBools([]bool, []float32) int                 { return 0 }
func toFlags([]Flags, []float32) int                { return 0 }
func gate([]uint16, []uint16, []uint16) int         { return 0 }
func gateAdjoints(_, _, _, _, _ []uint16) int       { return 0 }
func bits256([]uint32, [2]uint32, uint32) int       { return 0 }
func ropeAdjacent(_, _, _, _ []float32, _ bool) int { return 0 }

// These variables are used only if the processor has AVX2.
var (
	rotate64s, rotate16s func(dst, a []float32, scale float32)
	groupSums            func(dst, a, b []float32, size int)
	groupLargest         func(dst, a []float32, size int)
	groupExtreme         func(op Op, dst, a []float32, size int)
	transposePairs       func(dst []float32, dstStride int, src []float32, stride, rows, columns int)
	transpose            func(
		dst []float32, dstStride int, src []float32, stride, rows, columns int, factors []float32)
)

// Vectors returns "none": this build has no vector instructions.
func Vectors() string { return "none" }

// LacksVectors reports whether this build lacks vector instructions that its architecture has.
func LacksVectors() bool { return runtime.GOARCH == "amd64" }
