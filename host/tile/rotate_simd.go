//go:build goexperiment.simd

package tile

import "simd"

// rotateRuns multiplies runs by the matrix: vectors of it times elements. Products with
// signs are exact, so that it does not matter whether an addition is fused with one.
func rotateRuns(dst, a []float32, size int) {
	width := simd.Float32s{}.Len()
	if size < run || width > run {
		plainRotateRuns(dst, a, size)
		return
	}
	for len(dst) >= run && len(a) >= run {
		to, row := (*[run]float32)(dst), *(*[run]float32)(a)
		for i := 0; i <= run-width; i += width {
			sum0 := simd.BroadcastFloat32s(row[0])
			sum1 := simd.BroadcastFloat32s(row[1]).Mul(simd.LoadFloat32s(signs[1][i:]))
			sum2 := simd.BroadcastFloat32s(row[2]).Mul(simd.LoadFloat32s(signs[2][i:]))
			sum3 := simd.BroadcastFloat32s(row[3]).Mul(simd.LoadFloat32s(signs[3][i:]))
			for j := 4; j < run; j += 4 {
				sum0 = simd.BroadcastFloat32s(row[j]).MulAdd(simd.LoadFloat32s(signs[j][i:]), sum0)
				sum1 = simd.BroadcastFloat32s(row[j+1]).MulAdd(simd.LoadFloat32s(signs[j+1][i:]), sum1)
				sum2 = simd.BroadcastFloat32s(row[j+2]).MulAdd(simd.LoadFloat32s(signs[j+2][i:]), sum2)
				sum3 = simd.BroadcastFloat32s(row[j+3]).MulAdd(simd.LoadFloat32s(signs[j+3][i:]), sum3)
			}
			sum0.Add(sum1).Add(sum2.Add(sum3)).Store(to[i:])
		}
		dst, a = dst[run:], a[run:]
	}
}

func butterfly(x, y []float32) {
	width := simd.Float32s{}.Len()
	for len(x) >= run && len(y) >= run && width <= run {
		x0, y0 := (*[run]float32)(x), (*[run]float32)(y)
		for i := 0; i <= run-width; i += width {
			a, b := simd.LoadFloat32s(x0[i:]), simd.LoadFloat32s(y0[i:])
			a.Add(b).Store(x0[i:])
			a.Sub(b).Store(y0[i:])
		}
		x, y = x[run:], y[run:]
	}
	plainButterfly(x, y)
}

func butterflies(w, x, y, z []float32) {
	width := simd.Float32s{}.Len()
	for len(w) >= run && len(x) >= run && len(y) >= run && len(z) >= run && width <= run {
		w0, x0, y0, z0 := (*[run]float32)(w), (*[run]float32)(x), (*[run]float32)(y), (*[run]float32)(z)
		for i := 0; i <= run-width; i += width {
			a, b := simd.LoadFloat32s(w0[i:]), simd.LoadFloat32s(x0[i:])
			c, d := simd.LoadFloat32s(y0[i:]), simd.LoadFloat32s(z0[i:])
			a, b, c, d = a.Add(b), a.Sub(b), c.Add(d), c.Sub(d)
			a.Add(c).Store(w0[i:])
			b.Add(d).Store(x0[i:])
			a.Sub(c).Store(y0[i:])
			b.Sub(d).Store(z0[i:])
		}
		w, x, y, z = w[run:], x[run:], y[run:], z[run:]
	}
	plainButterflies(w, x, y, z)
}
