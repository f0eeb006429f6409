//go:build goexperiment.simd

package loops

import "simd"

// rotateRuns computes the sums of all positions of a run at once: it broadcasts each element of the
// run, times its signs, to vectors of sums. Products with signs are exact, so that fused
// multiplications and additions have the same bits as separate ones.
func rotateRuns(dst, a []float32, size int, scale float32) {
	width := simd.Float32s{}.Len()
	if size < run || width > run {
		plainRotateRuns(dst, a, size, scale)
		return
	}
	factor := simd.BroadcastFloat32s(scale)
	for len(dst) >= run && len(a) >= run {
		to, from := (*[run]float32)(dst), (*[run]float32)(a)
		var row [run]float32
		for i := 0; i <= run-width; i += width {
			simd.LoadFloat32s(from[i:]).Mul(factor).Store(row[i:])
		}
		for i := 0; i <= run-width; i += width {
			s0, s1 := simd.LoadFloat32s(signs[0][i:]), simd.LoadFloat32s(signs[1][i:])
			s2, s3 := simd.LoadFloat32s(signs[2][i:]), simd.LoadFloat32s(signs[3][i:])
			sum0 := pairs(&row, 0, s2, s3)
			sum1 := pairs(&row, 1, s2, s3)
			sum0 = pairs(&row, 2, s2, s3).MulAdd(s1, sum0)
			sum1 = pairs(&row, 3, s2, s3).MulAdd(s1, sum1)
			sum1.MulAdd(s0, sum0).Store(to[i:])
		}
		dst, a = dst[run:], a[run:]
	}
}

// pairs adds up elements j, j+4, j+8 and j+12 of a run, with the signs s2 and s3.
func pairs(row *[run]float32, j int, s2, s3 simd.Float32s) simd.Float32s {
	x := simd.BroadcastFloat32s(row[j+8]).MulAdd(s3, simd.BroadcastFloat32s(row[j]))
	y := simd.BroadcastFloat32s(row[j+12]).MulAdd(s3, simd.BroadcastFloat32s(row[j+4]))
	return y.MulAdd(s2, x)
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
