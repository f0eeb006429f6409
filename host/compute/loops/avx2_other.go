//go:build !amd64 || !goexperiment.simd

package loops

const hasAVX2 = false

var hasAVX512 = false

func rotate64s(dst, a []float32, scale float32)         { panic("loops: no AVX2") }
func rotate16s(dst, a []float32, scale float32)         { panic("loops: no AVX2") }
func longSums(dst, a, b []float32, size int)            { panic("loops: no AVX2") }
func unary256(op Op, dst, a []float32) int              { panic("loops: no AVX2") }
func binaryS256(op Op, dst, a []float32, s float32) int { panic("loops: no AVX2") }
func expLinVectors(dst, a []float32, scale, down float32) int {
	panic("loops: no AVX2")
}
func maxColumnsVectors(most, a []float32) int { panic("loops: no AVX2") }
func expColumnsVectors(a []float32, scale float32, down, sums []float32, rounds bool) int {
	panic("loops: no AVX2")
}
func pairedColumnsVectors(a []float32, scale float32, down, sums []float32) int {
	panic("loops: no AVX-512")
}
func pairedRowsVectors(a, d []float32, scale float32, down, means []float32) {
	panic("loops: no AVX-512")
}
func expRowsVectors(a, d []float32, scale float32, down, means []float32, rounds bool) {
	panic("loops: no AVX2")
}
func clamp256(dst, a []float32, lo, hi float32) int           { panic("loops: no AVX2") }
func roundMulS256(dst, a []float32, s float32) int            { panic("loops: no AVX2") }
func near256(dst, a, b []float32, s float32) int              { panic("loops: no AVX2") }
func selectS256(dst, c, a []float32, s float32) int           { panic("loops: no AVX2") }
func spread256(dst, a []float32, times int) int               { panic("loops: no AVX2") }
func largest256(dst, a []float32, size int)                   { panic("loops: no AVX2") }
func quantize512(q *Quantizer, r *Quantized, a []float32) int { panic("loops: no AVX-512") }
func extreme256(op Op, dst, a []float32, size int)            { panic("loops: no AVX2") }
func turnPairs256(dst []float32, dstStride int, src []float32, stride, rows, columns int) {
	panic("loops: no AVX2")
}
func transpose256(dst []float32, dstStride int, src []float32, stride, rows, columns int, factors []float32) {
	panic("loops: no AVX2")
}
func turnNeighbours256(dst, x, cos, sin []float32, back bool) { panic("loops: no AVX2") }
func gate512(dst, a, b []uint16) int                          { panic("loops: no AVX-512") }
func gateAdjoints512(da, db, a, b, d []uint16) int            { panic("loops: no AVX-512") }

func turnNeighbours512(dst, x, cos, sin []float32, back bool) int { panic("loops: no AVX-512") }
