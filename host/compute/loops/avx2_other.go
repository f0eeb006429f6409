//go:build !amd64 || !goexperiment.simd

package loops

const hasAVX2 = false

func rotate64s(dst, a []float32, scale float32) { panic("loops: no AVX2") }
func rotate16s(dst, a []float32, scale float32) { panic("loops: no AVX2") }
func longSums(dst, a, b []float32, size int)    { panic("loops: no AVX2") }
