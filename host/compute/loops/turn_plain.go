//go:build !goexperiment.simd

package loops

func turn(dst, x, cos, sin []float32, back bool) {
	for n := len(cos); len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		turnFrom(0, dst, x, cos, sin, back)
	}
}
