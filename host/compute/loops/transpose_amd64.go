//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// transpose256 transposes blocks of 8·8.
func transpose256(dst []float32, dstStride int, src []float32, stride, rows, columns int, factors []float32) {
	for j := 0; j < columns; j += 8 {
		by := archsimd.BroadcastFloat32x8(1)
		if factors != nil {
			by = get(factors[j:])
		}
		for i := 0; i < rows; i += 8 {
			from, to := src[i*stride+j:], dst[j*dstStride+i:]
			// Of rows r and r+1, elements of the same column become neighbours; then of pairs of rows, and of halves.
			a0, a1 := interleaved(get(from).Mul(by), get(from[stride:]).Mul(by))
			a2, a3 := interleaved(get(from[2*stride:]).Mul(by), get(from[3*stride:]).Mul(by))
			a4, a5 := interleaved(get(from[4*stride:]).Mul(by), get(from[5*stride:]).Mul(by))
			a6, a7 := interleaved(get(from[6*stride:]).Mul(by), get(from[7*stride:]).Mul(by))
			b0, b1 := quads(a0, a2)
			b2, b3 := quads(a1, a3)
			b4, b5 := quads(a4, a6)
			b6, b7 := quads(a5, a7)
			b0.ConcatPermute128Scalars(0, 2, b4).Store(to)
			b1.ConcatPermute128Scalars(0, 2, b5).Store(to[dstStride:])
			b2.ConcatPermute128Scalars(0, 2, b6).Store(to[2*dstStride:])
			b3.ConcatPermute128Scalars(0, 2, b7).Store(to[3*dstStride:])
			b0.ConcatPermute128Scalars(1, 3, b4).Store(to[4*dstStride:])
			b1.ConcatPermute128Scalars(1, 3, b5).Store(to[5*dstStride:])
			b2.ConcatPermute128Scalars(1, 3, b6).Store(to[6*dstStride:])
			b3.ConcatPermute128Scalars(1, 3, b7).Store(to[7*dstStride:])
		}
	}
	archsimd.ClearAVXUpperBits()
}

func interleaved(x, y floats8) (low, high archsimd.Uint64x4) {
	a, b := x.ToBits(), y.ToBits()
	return a.InterleaveLoGrouped(b).ReshapeToUint64s(), a.InterleaveHiGrouped(b).ReshapeToUint64s()
}

func quads(x, y archsimd.Uint64x4) (low, high floats8) {
	return x.InterleaveLoGrouped(y).ReshapeToUint32s().BitsToFloat32(), x.InterleaveHiGrouped(y).ReshapeToUint32s().BitsToFloat32()
}
