//go:build amd64 && goexperiment.simd

package linalg

import (
	"simd/archsimd"
	"unsafe"
)

func tile256(k int, a, b, c []float64, stride int) {
	var s0, t0 doubles4
	var s1, t1 doubles4
	var s2, t2 doubles4
	var s3, t3 doubles4
	a, b = a[:k*fourRows], b[:k*8]
	for len(a) >= fourRows && len(b) >= 8 {
		row := (*[fourRows]float64)(a)
		x, y := double4(b), double4(b[4:8])
		v := archsimd.BroadcastFloat64x4(row[0])
		s0, t0 = v.MulAdd(x, s0), v.MulAdd(y, t0)
		v = archsimd.BroadcastFloat64x4(row[1])
		s1, t1 = v.MulAdd(x, s1), v.MulAdd(y, t1)
		v = archsimd.BroadcastFloat64x4(row[2])
		s2, t2 = v.MulAdd(x, s2), v.MulAdd(y, t2)
		v = archsimd.BroadcastFloat64x4(row[3])
		s3, t3 = v.MulAdd(x, s3), v.MulAdd(y, t3)
		a, b = a[fourRows:], b[8:]
	}
	add256(c, s0, t0)
	add256(c[stride:], s1, t1)
	add256(c[2*stride:], s2, t2)
	add256(c[3*stride:], s3, t3)
	archsimd.ClearAVXUpperBits()
}

func add256(c []float64, s, t doubles4) {
	lo, hi := (*[4]float64)(c), (*[4]float64)(c[4:])
	archsimd.LoadFloat64x4Array(lo).Add(s).StoreArray(lo)
	archsimd.LoadFloat64x4Array(hi).Add(t).StoreArray(hi)
}

func tile256Single(k int, a, b, c []float32, stride int) {
	var s0, t0 singles8
	var s1, t1 singles8
	var s2, t2 singles8
	var s3, t3 singles8
	a, b = a[:k*fourRows], b[:k*16]
	for len(a) >= fourRows && len(b) >= 16 {
		row := (*[fourRows]float32)(a)
		x, y := single8(b), single8(b[8:16])
		v := archsimd.BroadcastFloat32x8(row[0])
		s0, t0 = v.MulAdd(x, s0), v.MulAdd(y, t0)
		v = archsimd.BroadcastFloat32x8(row[1])
		s1, t1 = v.MulAdd(x, s1), v.MulAdd(y, t1)
		v = archsimd.BroadcastFloat32x8(row[2])
		s2, t2 = v.MulAdd(x, s2), v.MulAdd(y, t2)
		v = archsimd.BroadcastFloat32x8(row[3])
		s3, t3 = v.MulAdd(x, s3), v.MulAdd(y, t3)
		a, b = a[fourRows:], b[16:]
	}
	add256Single(c, s0, t0)
	add256Single(c[stride:], s1, t1)
	add256Single(c[2*stride:], s2, t2)
	add256Single(c[3*stride:], s3, t3)
	archsimd.ClearAVXUpperBits()
}

func add256Single(c []float32, s, t singles8) {
	lo, hi := (*[8]float32)(c), (*[8]float32)(c[8:])
	archsimd.LoadFloat32x8Array(lo).Add(s).StoreArray(lo)
	archsimd.LoadFloat32x8Array(hi).Add(t).StoreArray(hi)
}

// tile512 is the tile kernel for 8 rows and 16 columns.
func tile512(k int, a, b, c []float64, stride int) {
	checkTile(k, a, b, c, stride, 8, 16)
	tile8x16(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x16(k int, a, b, c *float64, stride int)

// checkTile panics if the assembly code would access memory beyond a slice.
func checkTile[T Float](k int, a, b, c []T, stride, rows, cols int) {
	_, _, _ = a[:k*rows], b[:k*cols], c[:(rows-1)*stride+cols]
}

// tile512Single is the tile kernel for 8 rows and 32 columns.
func tile512Single(k int, a, b, c []float32, stride int) {
	checkTile(k, a, b, c, stride, 8, 32)
	tile8x32(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x32(k int, a, b, c *float32, stride int)

// Vector types, and functions that load the first elements of a slice.
type (
	doubles4  = archsimd.Float64x4
	doubles8  = archsimd.Float64x8
	singles8  = archsimd.Float32x8
	singles16 = archsimd.Float32x16
)

func double4(x []float64) doubles4   { return archsimd.LoadFloat64x4Array((*[4]float64)(x)) }
func double8(x []float64) doubles8   { return archsimd.LoadFloat64x8Array((*[8]float64)(x)) }
func single8(x []float32) singles8   { return archsimd.LoadFloat32x8Array((*[8]float32)(x)) }
func single16(x []float32) singles16 { return archsimd.LoadFloat32x16Array((*[16]float32)(x)) }

func dot256(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 doubles4
	for len(x) >= 16 && len(y) >= 16 {
		s0 = double4(x).MulAdd(double4(y), s0)
		s1 = double4(x[4:]).MulAdd(double4(y[4:]), s1)
		s2 = double4(x[8:]).MulAdd(double4(y[8:]), s2)
		s3 = double4(x[12:]).MulAdd(double4(y[12:]), s3)
		x, y = x[16:], y[16:]
	}
	for len(x) >= 4 && len(y) >= 4 {
		s0 = double4(x).MulAdd(double4(y), s0)
		x, y = x[4:], y[4:]
	}
	var lanes [4]float64
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sumDouble(lanes[:]), x, y)
}

func dot512(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 doubles8
	for len(x) >= 32 && len(y) >= 32 {
		s0 = double8(x).MulAdd(double8(y), s0)
		s1 = double8(x[8:]).MulAdd(double8(y[8:]), s1)
		s2 = double8(x[16:]).MulAdd(double8(y[16:]), s2)
		s3 = double8(x[24:]).MulAdd(double8(y[24:]), s3)
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		s0 = double8(x).MulAdd(double8(y), s0)
		x, y = x[8:], y[8:]
	}
	var lanes [8]float64
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sumDouble(lanes[:]), x, y)
}

func dot256Single(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 singles8
	for len(x) >= 32 && len(y) >= 32 {
		s0 = single8(x).MulAdd(single8(y), s0)
		s1 = single8(x[8:]).MulAdd(single8(y[8:]), s1)
		s2 = single8(x[16:]).MulAdd(single8(y[16:]), s2)
		s3 = single8(x[24:]).MulAdd(single8(y[24:]), s3)
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		s0 = single8(x).MulAdd(single8(y), s0)
		x, y = x[8:], y[8:]
	}
	var lanes [8]float32
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sumSingle(lanes[:]), x, y)
}

func dot512Single(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 singles16
	for len(x) >= 64 && len(y) >= 64 {
		s0 = single16(x).MulAdd(single16(y), s0)
		s1 = single16(x[16:]).MulAdd(single16(y[16:]), s1)
		s2 = single16(x[32:]).MulAdd(single16(y[32:]), s2)
		s3 = single16(x[48:]).MulAdd(single16(y[48:]), s3)
		x, y = x[64:], y[64:]
	}
	for len(x) >= 16 && len(y) >= 16 {
		s0 = single16(x).MulAdd(single16(y), s0)
		x, y = x[16:], y[16:]
	}
	var lanes [16]float32
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sumSingle(lanes[:]), x, y)
}

// These functions multiply one, two or four rows of x by four rows of w, each with n elements. Row
// strides are in bytes.

func products1(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
func products2(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
func products4(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
func halfProducts1(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)
func halfProducts2(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)
func halfProducts4(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)

// productsOf holds the kernels for weights of element type W.
type productsOf[W any] struct {
	one, two, four func(n int, x *float32, xStep int, w *W, wStep int, y *float32, yStep int)
}

var (
	products     = productsOf[float32]{products1, products2, products4}
	halfProducts = productsOf[uint16]{halfProducts1, halfProducts2, halfProducts4}
)

func few512(y, x, w MatrixOf[float32]) { few(products, y, x, w.Data, w.RowStride, w.Rows) }

func few512BFloat16(y, x MatrixOf[float32], w BFloat16) {
	few(halfProducts, y, x, w.Data, w.Cols, w.Rows)
}

const fewColumns = 4 // rows of w read at once

// few computes the products of x with rows of w, four at a time. The row stride is in elements.
func few[W any](p productsOf[W], y, x MatrixOf[float32], w []W, stride, rows int) {
	// Panic if the assembly code would access memory beyond a slice.
	_, _, _ = x.row(x.Rows-1), y.row(y.Rows - 1)[:rows], w[:(rows-1)*stride+x.Cols]
	if x.Cols == 0 {
		for i := range y.Rows {
			clear(y.row(i))
		}
		return
	}
	j := 0
	for ; j+fewColumns <= rows; j += fewColumns {
		p.column(y.Data[j:], y.RowStride, x, &w[j*stride], stride)
	}
	for ; j < rows; j++ {
		var edge [maxTileRows * fewColumns]float32
		for i := 0; i < x.Rows; i += maxTileRows {
			part := x.Part(i, min(i+maxTileRows, x.Rows))
			p.column(edge[:], fewColumns, part, &w[j*stride], 0) // the same row of w four times
			for k := range part.Rows {
				y.Data[(i+k)*y.RowStride+j] = edge[k*fewColumns]
			}
		}
	}
}

// column computes the products of all rows of x with four rows of w.
func (p productsOf[W]) column(y []float32, yStride int, x MatrixOf[float32], w *W, stride int) {
	const size = int(unsafe.Sizeof(float32(0)))
	xStep, wStep, yStep := x.RowStride*size, stride*int(unsafe.Sizeof(*w)), yStride*size
	i := 0
	for ; i+4 <= x.Rows; i += 4 {
		p.four(x.Cols, &x.Data[i*x.RowStride], xStep, w, wStep, &y[i*yStride], yStep)
	}
	if i+2 <= x.Rows {
		p.two(x.Cols, &x.Data[i*x.RowStride], xStep, w, wStep, &y[i*yStride], yStep)
		i += 2
	}
	if i < x.Rows {
		p.one(x.Cols, &x.Data[i*x.RowStride], xStep, w, wStep, &y[i*yStride], yStep)
	}
}
