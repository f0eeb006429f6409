//go:build !goexperiment.simd

package tile

func add(dst, a, b []float32)                { plainAdd(dst, a, b) }
func sub(dst, a, b []float32)                { plainSub(dst, a, b) }
func mul(dst, a, b []float32)                { plainMul(dst, a, b) }
func div(dst, a, b []float32)                { plainDiv(dst, a, b) }
func addS(dst, a []float32, s float32)       { plainAddS(dst, a, s) }
func fromS(dst, a []float32, s float32)      { plainFromS(dst, a, s) }
func mulS(dst, a []float32, s float32)       { plainMulS(dst, a, s) }
func divS(dst, a []float32, s float32)       { plainDivS(dst, a, s) }
func intoS(dst, a []float32, s float32)      { plainIntoS(dst, a, s) }
func mulMulS(dst, a, b []float32, s float32) { plainMulMulS(dst, a, b, s) }

func linAdd(dst, a []float32, s float32, b []float32, t float32) { plainLinAdd(dst, a, s, b, t) }
func linSub(dst, a []float32, s float32, b []float32, t float32) { plainLinSub(dst, a, s, b, t) }
func linMul(dst, a []float32, s float32, b, c []float32, t float32) {
	plainLinMul(dst, a, s, b, c, t)
}
func sqrtLin(dst, a []float32, s, t float32)    { plainSqrtLin(dst, a, s, t) }
func clampAll(dst, a []float32, lo, hi float32) { plainClamp(dst, a, lo, hi) }
func choose(dst, c, a, b []float32)             { plainSelect(dst, c, a, b) }
func unaryAll(op opcode, dst, a []float32)      { plainUnary(op, dst, a) }
func binaryAll(op opcode, dst, a, b []float32)  { plainBinary(op, dst, a, b) }

func rotateRuns(dst, a []float32, size int, scale float32) {
	plainRotateRuns(dst, a, size, scale)
}
func butterfly(x, y []float32)         { plainButterfly(x, y) }
func butterflies(w, x, y, z []float32) { plainButterflies(w, x, y, z) }

func sum(l *lanes, a []float32)        { plainSum(l, a) }
func sumMul(l *lanes, a, b []float32)  { plainSumMul(l, a, b) }
func sumDiff(l *lanes, a, b []float32) { plainSumDiff(l, a, b) }
