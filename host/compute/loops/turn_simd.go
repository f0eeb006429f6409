//go:build goexperiment.simd

package loops

import "simd"

func turn(dst, x, cos, sin []float32, back bool) {
	width, n := simd.Float32s{}.Len(), len(cos)
	sign := simd.BroadcastFloat32s(1)
	if back {
		sign = simd.BroadcastFloat32s(-1)
	}
	for ; len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		i := 0
		for ; i+width <= n; i += width {
			a, b := simd.LoadFloat32s(x[i:]), simd.LoadFloat32s(x[n+i:])
			c, s := simd.LoadFloat32s(cos[i:]), simd.LoadFloat32s(sin[i:]).Mul(sign)
			a.Mul(c).Sub(b.Mul(s)).Store(dst[i:])
			b.Mul(c).Add(a.Mul(s)).Store(dst[n+i:])
		}
		turnFrom(i, dst, x, cos, sin, back)
	}
}
