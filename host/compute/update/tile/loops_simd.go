//go:build goexperiment.simd

package tile

import "simd"

// Vectorized loops. They go by blocks, arrays in which the compiler sees that vectors
// lie within bounds, and leave what is no whole block to the plain loops.

func add(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Add(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainAdd(dst, a, b)
}

func sub(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Sub(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainSub(dst, a, b)
}

func mul(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainMul(dst, a, b)
}

func div(dst, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Div(simd.LoadFloat32s(b0[i:])).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainDiv(dst, a, b)
}

func addS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Add(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainAddS(dst, a, s)
}

func fromS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			c.Sub(simd.LoadFloat32s(a0[i:])).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainFromS(dst, a, s)
}

func mulS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainMulS(dst, a, s)
}

func divS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Div(c).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainDivS(dst, a, s)
}

func intoS(dst, a []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			c.Div(simd.LoadFloat32s(a0[i:])).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainIntoS(dst, a, s)
}

func mulMulS(dst, a, b []float32, s float32) {
	width := simd.Float32s{}.Len()
	c := simd.BroadcastFloat32s(s)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:])).Mul(c).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainMulMulS(dst, a, b, s)
}

func linAdd(dst, a []float32, s float32, b []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(x).Add(simd.LoadFloat32s(b0[i:]).Mul(y)).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainLinAdd(dst, a, s, b, t)
}

func linSub(dst, a []float32, s float32, b []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block {
		dst0, a0, b0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Mul(x).Sub(simd.LoadFloat32s(b0[i:]).Mul(y)).Store(dst0[i:])
		}
		dst, a, b = dst[block:], a[block:], b[block:]
	}
	plainLinSub(dst, a, s, b, t)
}

func linMul(dst, a []float32, s float32, b, c []float32, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block && len(b) >= block && len(c) >= block {
		dst0, a0, b0, c0 := (*[block]float32)(dst), (*[block]float32)(a), (*[block]float32)(b), (*[block]float32)(c)
		for i := 0; i <= block-width; i += width {
			p := simd.LoadFloat32s(b0[i:]).Mul(simd.LoadFloat32s(c0[i:])).Mul(y)
			simd.LoadFloat32s(a0[i:]).Mul(x).Add(p).Store(dst0[i:])
		}
		dst, a, b, c = dst[block:], a[block:], b[block:], c[block:]
	}
	plainLinMul(dst, a, s, b, c, t)
}

func sqrtLin(dst, a []float32, s, t float32) {
	width := simd.Float32s{}.Len()
	x, y := simd.BroadcastFloat32s(s), simd.BroadcastFloat32s(t)
	for len(dst) >= block && len(a) >= block {
		dst0, a0 := (*[block]float32)(dst), (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			simd.LoadFloat32s(a0[i:]).Sqrt().Mul(x).Add(y).Store(dst0[i:])
		}
		dst, a = dst[block:], a[block:]
	}
	plainSqrtLin(dst, a, s, t)
}
