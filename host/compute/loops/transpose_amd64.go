//go:build amd64 && goexperiment.simd

package loops

import (
	"simd/archsimd"
	"unsafe"
)

// transpose transposes in blocks of 8×8. It checks bounds only once, because checking each row
// would take longer than all the rest.
func transpose(dst []float32, dstStride int, src []float32, stride, rows, columns int,
	factors []float32) {
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

func transposeBlock(to unsafe.Pointer, toStride int, from unsafe.Pointer, stride int, by floats8) {
	// First interleave the elements of rows r and r+1 in the same column, then pairs of rows, then
	// halves of vectors.
	a0, a1 := interleaved(row8(from, 0, by), row8(from, stride, by))
	a2, a3 := interleaved(row8(from, 2*stride, by), row8(from, 3*stride, by))
	a4, a5 := interleaved(row8(from, 4*stride, by), row8(from, 5*stride, by))
	a6, a7 := interleaved(row8(from, 6*stride, by), row8(from, 7*stride, by))
	b0, b1 := quads(a0, a2)
	b2, b3 := quads(a1, a3)
	b4, b5 := quads(a4, a6)
	b6, b7 := quads(a5, a7)
	b0.ConcatPermute128Scalars(0, 2, b4).StoreArray(words8(to, 0))
	b1.ConcatPermute128Scalars(0, 2, b5).StoreArray(words8(to, toStride))
	b2.ConcatPermute128Scalars(0, 2, b6).StoreArray(words8(to, 2*toStride))
	b3.ConcatPermute128Scalars(0, 2, b7).StoreArray(words8(to, 3*toStride))
	b0.ConcatPermute128Scalars(1, 3, b4).StoreArray(words8(to, 4*toStride))
	b1.ConcatPermute128Scalars(1, 3, b5).StoreArray(words8(to, 5*toStride))
	b2.ConcatPermute128Scalars(1, 3, b6).StoreArray(words8(to, 6*toStride))
	b3.ConcatPermute128Scalars(1, 3, b7).StoreArray(words8(to, 7*toStride))
}

// transposePairs is [Form.Transpose] for Paired, in blocks of 8×8 words.
func transposePairs(dst []float32, dstStride int, src []float32, stride, rows, columns int) {
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = src[(rows-1)*stride+columns-1], dst[(columns/2-1)*dstStride+2*rows-1]
	for j := 0; j < columns; j += 8 {
		from, to := unsafe.Pointer(&src[j]), unsafe.Pointer(&dst[j/2*dstStride])
		for i := 0; i < rows; i += 8 {
			transposePairsBlock(unsafe.Add(to, 8*i), 4*dstStride, unsafe.Add(from, 4*i*stride), 4*stride)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// transposePairsBlock is transposeBlock for words that are pairs: before the halves of vectors are
// exchanged, the halves of the words of two columns are interleaved. A row of results has 16 words.
func transposePairsBlock(to unsafe.Pointer, toStride int, from unsafe.Pointer, stride int) {
	a0, a1 := interleaved(word8(from, 0), word8(from, stride))
	a2, a3 := interleaved(word8(from, 2*stride), word8(from, 3*stride))
	a4, a5 := interleaved(word8(from, 4*stride), word8(from, 5*stride))
	a6, a7 := interleaved(word8(from, 6*stride), word8(from, 7*stride))
	b0, b1 := quads(a0, a2)
	b2, b3 := quads(a1, a3)
	b4, b5 := quads(a4, a6)
	b6, b7 := quads(a5, a7)
	c0, c1 := paired(b0, b1)
	c2, c3 := paired(b2, b3)
	c4, c5 := paired(b4, b5)
	c6, c7 := paired(b6, b7)
	c0.ConcatPermute128Scalars(0, 2, c1).StoreArray(words8(to, 0))
	c4.ConcatPermute128Scalars(0, 2, c5).StoreArray(words8(to, 32))
	c2.ConcatPermute128Scalars(0, 2, c3).StoreArray(words8(to, toStride))
	c6.ConcatPermute128Scalars(0, 2, c7).StoreArray(words8(to, toStride+32))
	c0.ConcatPermute128Scalars(1, 3, c1).StoreArray(words8(to, 2*toStride))
	c4.ConcatPermute128Scalars(1, 3, c5).StoreArray(words8(to, 2*toStride+32))
	c2.ConcatPermute128Scalars(1, 3, c3).StoreArray(words8(to, 3*toStride))
	c6.ConcatPermute128Scalars(1, 3, c7).StoreArray(words8(to, 3*toStride+32))
}

func at8(p unsafe.Pointer, bytes int) *[8]float32 { return (*[8]float32)(unsafe.Add(p, bytes)) }

func words8(p unsafe.Pointer, bytes int) *[8]uint32 { return (*[8]uint32)(unsafe.Add(p, bytes)) }

func row8(p unsafe.Pointer, bytes int, by floats8) archsimd.Uint32x8 {
	return archsimd.LoadFloat32x8Array(at8(p, bytes)).Mul(by).ToBits()
}

func word8(p unsafe.Pointer, bytes int) archsimd.Uint32x8 {
	return archsimd.LoadUint32x8Array(words8(p, bytes))
}

func interleaved(x, y archsimd.Uint32x8) (low, high archsimd.Uint64x4) {
	return x.InterleaveLoGrouped(y).ReshapeToUint64s(), x.InterleaveHiGrouped(y).ReshapeToUint64s()
}

func quads(x, y archsimd.Uint64x4) (low, high archsimd.Uint32x8) {
	return x.InterleaveLoGrouped(y).ReshapeToUint32s(), x.InterleaveHiGrouped(y).ReshapeToUint32s()
}

func paired(x, y archsimd.Uint32x8) (low, high archsimd.Uint32x8) {
	a, b := x.ReshapeToUint16s(), y.ReshapeToUint16s()
	return a.InterleaveLoGrouped(b).ReshapeToUint32s(), a.InterleaveHiGrouped(b).ReshapeToUint32s()
}
