//go:build amd64 && goexperiment.simd

package loops

import (
	"simd/archsimd"
	"unsafe"
)

// transpose256 transposes blocks of 8·8. Bounds are checked once: checks of every row would take longer than the rest.
func transpose256(dst []float32, dstStride int, src []float32, stride, rows, columns int, factors []float32) {
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = src[(rows-1)*stride+columns-1], dst[(columns-1)*dstStride+rows-1]
	for j := 0; j < columns; j += 8 {
		by := archsimd.BroadcastFloat32x8(1)
		if factors != nil {
			by = get(factors[j:])
		}
		from, to := unsafe.Pointer(&src[j]), unsafe.Pointer(&dst[j*dstStride])
		for i := 0; i < rows; i += 8 {
			transposeBlock(unsafe.Add(to, 4*i), 4*dstStride, unsafe.Add(from, 4*i*stride), 4*stride, by)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// transposeBlock transposes one block, whose rows are so many bytes apart.
func transposeBlock(to unsafe.Pointer, toStride int, from unsafe.Pointer, stride int, by floats8) {
	// Of rows r and r+1, elements of the same column become neighbours; then of pairs of rows, and of halves.
	a0, a1 := interleaved(row8(from, 0, by), row8(from, stride, by))
	a2, a3 := interleaved(row8(from, 2*stride, by), row8(from, 3*stride, by))
	a4, a5 := interleaved(row8(from, 4*stride, by), row8(from, 5*stride, by))
	a6, a7 := interleaved(row8(from, 6*stride, by), row8(from, 7*stride, by))
	b0, b1 := quads(a0, a2)
	b2, b3 := quads(a1, a3)
	b4, b5 := quads(a4, a6)
	b6, b7 := quads(a5, a7)
	b0.ConcatPermute128Scalars(0, 2, b4).StoreArray(at8(to, 0))
	b1.ConcatPermute128Scalars(0, 2, b5).StoreArray(at8(to, toStride))
	b2.ConcatPermute128Scalars(0, 2, b6).StoreArray(at8(to, 2*toStride))
	b3.ConcatPermute128Scalars(0, 2, b7).StoreArray(at8(to, 3*toStride))
	b0.ConcatPermute128Scalars(1, 3, b4).StoreArray(at8(to, 4*toStride))
	b1.ConcatPermute128Scalars(1, 3, b5).StoreArray(at8(to, 5*toStride))
	b2.ConcatPermute128Scalars(1, 3, b6).StoreArray(at8(to, 6*toStride))
	b3.ConcatPermute128Scalars(1, 3, b7).StoreArray(at8(to, 7*toStride))
}

func at8(p unsafe.Pointer, bytes int) *[8]float32 { return (*[8]float32)(unsafe.Add(p, bytes)) }

func row8(p unsafe.Pointer, bytes int, by floats8) floats8 {
	return archsimd.LoadFloat32x8Array(at8(p, bytes)).Mul(by)
}

func interleaved(x, y floats8) (low, high archsimd.Uint64x4) {
	a, b := x.ToBits(), y.ToBits()
	return a.InterleaveLoGrouped(b).ReshapeToUint64s(), a.InterleaveHiGrouped(b).ReshapeToUint64s()
}

func quads(x, y archsimd.Uint64x4) (low, high floats8) {
	return x.InterleaveLoGrouped(y).ReshapeToUint32s().BitsToFloat32(), x.InterleaveHiGrouped(y).ReshapeToUint32s().BitsToFloat32()
}
