//go:build goexperiment.simd

package tile

import "simd"

// Vectorized sums: element i of a tile is added in lane i of a block, so that the width
// of the processor's vectors does not matter.

func sum(l *lanes, a []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block {
		a0 := (*[block]float32)(a)
		for i := 0; i <= block-width; i += width {
			x := simd.LoadFloat32s(a0[i:])
			simd.LoadFloat32s(l[i:]).Add(x).Store(l[i:])
		}
		a = a[block:]
	}
	plainSum(l, a)
}

func sumMul(l *lanes, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block && len(b) >= block {
		a0, b0 := (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			x := simd.LoadFloat32s(a0[i:]).Mul(simd.LoadFloat32s(b0[i:]))
			simd.LoadFloat32s(l[i:]).Add(x).Store(l[i:])
		}
		a, b = a[block:], b[block:]
	}
	plainSumMul(l, a, b)
}

func sumDiff(l *lanes, a, b []float32) {
	width := simd.Float32s{}.Len()
	for len(a) >= block && len(b) >= block {
		a0, b0 := (*[block]float32)(a), (*[block]float32)(b)
		for i := 0; i <= block-width; i += width {
			e := simd.LoadFloat32s(a0[i:]).Sub(simd.LoadFloat32s(b0[i:]))
			simd.LoadFloat32s(l[i:]).Add(e.Mul(e)).Store(l[i:])
		}
		a, b = a[block:], b[block:]
	}
	plainSumDiff(l, a, b)
}
