//go:build amd64 && goexperiment.simd

package linalg

import (
	"simd/archsimd"
	"unsafe"
)

// tile512 is a tile of 8 rows of 16.
func tile512(k int, a, b, c []float64, stride int) {
	checkTile(k, a, b, c, stride, 8, 16)
	tile8x16(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x16(k int, a, b, c *float64, stride int)

// checkTile panics where the assembler would leave a slice.
func checkTile[T Float](k int, a, b, c []T, stride, rows, cols int) {
	_, _, _ = a[:k*rows], b[:k*cols], c[:(rows-1)*stride+cols]
}

// sum512 adds the lanes up, always in the same order.
func sum512(v *[8]float64) float64 {
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
}

func dot512(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float64x8
	for len(x) >= 32 && len(y) >= 32 {
		s0 = archsimd.LoadFloat64x8Array((*[8]float64)(x)).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y)), s0)
		s1 = archsimd.LoadFloat64x8Array((*[8]float64)(x[8:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[8:])), s1)
		s2 = archsimd.LoadFloat64x8Array((*[8]float64)(x[16:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[16:])), s2)
		s3 = archsimd.LoadFloat64x8Array((*[8]float64)(x[24:])).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y[24:])), s3)
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		s0 = archsimd.LoadFloat64x8Array((*[8]float64)(x)).MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(y)), s0)
		x, y = x[8:], y[8:]
	}
	var lanes [8]float64
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum512(&lanes), x, y)
}

func axpy512(alpha float64, x, y []float64) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat64x8(alpha)
	for len(x) >= 8 && len(y) >= 8 {
		at := (*[8]float64)(y)
		a.MulAdd(archsimd.LoadFloat64x8Array((*[8]float64)(x)), archsimd.LoadFloat64x8Array(at)).StoreArray(at)
		x, y = x[8:], y[8:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func four512(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) [4]float64 {
	n := len(a0)
	a1, a2, a3, x, y = a1[:n], a2[:n], a3[:n], x[:n], y[:n]
	b0, b1 := archsimd.BroadcastFloat64x8(alpha[0]), archsimd.BroadcastFloat64x8(alpha[1])
	b2, b3 := archsimd.BroadcastFloat64x8(alpha[2]), archsimd.BroadcastFloat64x8(alpha[3])
	var s0, s1, s2, s3 archsimd.Float64x8
	i := 0
	for ; i+8 <= n; i += 8 {
		v, at := archsimd.LoadFloat64x8Array((*[8]float64)(x[i:])), (*[8]float64)(y[i:])
		w := archsimd.LoadFloat64x8Array(at)
		r := archsimd.LoadFloat64x8Array((*[8]float64)(a0[i:]))
		s0, w = r.MulAdd(v, s0), r.MulAdd(b0, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a1[i:]))
		s1, w = r.MulAdd(v, s1), r.MulAdd(b1, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a2[i:]))
		s2, w = r.MulAdd(v, s2), r.MulAdd(b2, w)
		r = archsimd.LoadFloat64x8Array((*[8]float64)(a3[i:]))
		s3, w = r.MulAdd(v, s3), r.MulAdd(b3, w)
		w.StoreArray(at)
	}
	var lanes [4][8]float64
	s0.StoreArray(&lanes[0])
	s1.StoreArray(&lanes[1])
	s2.StoreArray(&lanes[2])
	s3.StoreArray(&lanes[3])
	archsimd.ClearAVXUpperBits()
	sum := fourPortable(a0[i:], a1[i:], a2[i:], a3[i:], x[i:], y[i:], alpha)
	for i := range lanes {
		sum[i] += sum512(&lanes[i])
	}
	return sum
}

func secular512(poles, z []float64, origin, mu float64) (value, slope float64) {
	z = z[:len(poles)]
	o, m := archsimd.BroadcastFloat64x8(origin), archsimd.BroadcastFloat64x8(mu)
	var s0, s1 archsimd.Float64x8
	for len(poles) >= 8 && len(z) >= 8 {
		v := archsimd.LoadFloat64x8Array((*[8]float64)(z))
		t := v.Div(archsimd.LoadFloat64x8Array((*[8]float64)(poles)).Sub(o).Sub(m))
		s0, s1 = v.MulAdd(t, s0), t.MulAdd(t, s1)
		poles, z = poles[8:], z[8:]
	}
	var values, slopes [8]float64
	s0.StoreArray(&values)
	s1.StoreArray(&slopes)
	archsimd.ClearAVXUpperBits()
	value, slope = secularPortable(poles, z, origin, mu)
	return value + sum512(&values), slope + sum512(&slopes)
}

// tile512Single is a tile of 8 rows of 32.
func tile512Single(k int, a, b, c []float32, stride int) {
	checkTile(k, a, b, c, stride, 8, 32)
	tile8x32(k, unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c), stride)
}

//go:noescape
func tile8x32(k int, a, b, c *float32, stride int)

// sum512Single adds the lanes up, always in the same order.
func sum512Single(v *[16]float32) float32 {
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

func dot512Single(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 archsimd.Float32x16
	for len(x) >= 64 && len(y) >= 64 {
		s0 = archsimd.LoadFloat32x16Array((*[16]float32)(x)).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y)), s0)
		s1 = archsimd.LoadFloat32x16Array((*[16]float32)(x[16:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[16:])), s1)
		s2 = archsimd.LoadFloat32x16Array((*[16]float32)(x[32:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[32:])), s2)
		s3 = archsimd.LoadFloat32x16Array((*[16]float32)(x[48:])).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y[48:])), s3)
		x, y = x[64:], y[64:]
	}
	for len(x) >= 16 && len(y) >= 16 {
		s0 = archsimd.LoadFloat32x16Array((*[16]float32)(x)).MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(y)), s0)
		x, y = x[16:], y[16:]
	}
	var lanes [16]float32
	s0.Add(s1).Add(s2.Add(s3)).StoreArray(&lanes)
	archsimd.ClearAVXUpperBits()
	return dotRest(sum512Single(&lanes), x, y)
}

func axpy512Single(alpha float32, x, y []float32) {
	y = y[:len(x)]
	a := archsimd.BroadcastFloat32x16(alpha)
	for len(x) >= 16 && len(y) >= 16 {
		at := (*[16]float32)(y)
		a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(x)), archsimd.LoadFloat32x16Array(at)).StoreArray(at)
		x, y = x[16:], y[16:]
	}
	archsimd.ClearAVXUpperBits()
	axpyPortable(alpha, x, y)
}

func mix512(y, x []float32, m MatrixOf[float32]) {
	j := 0
	for ; j+64 <= len(y); j += 64 {
		var s0, s1, s2, s3 archsimd.Float32x16
		for i, v := range x {
			a, row := archsimd.BroadcastFloat32x16(v), (*[64]float32)(m.Data[i*m.RowStride+j:])
			s0 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[:16])), s0)
			s1 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[16:])), s1)
			s2 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[32:])), s2)
			s3 = a.MulAdd(archsimd.LoadFloat32x16Array((*[16]float32)(row[48:])), s3)
		}
		to := (*[64]float32)(y[j:])
		s0.StoreArray((*[16]float32)(to[:16]))
		s1.StoreArray((*[16]float32)(to[16:]))
		s2.StoreArray((*[16]float32)(to[32:]))
		s3.StoreArray((*[16]float32)(to[48:]))
	}
	archsimd.ClearAVXUpperBits()
	mixFrom(j, y, x, m, axpy512Single)
}

// Products of one, two or four rows of x, n elements each, with four of w. Steps from row to row are in bytes.

//go:noescape
func products1(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)

//go:noescape
func products2(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)

//go:noescape
func products4(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)

//go:noescape
func halfProducts1(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)

//go:noescape
func halfProducts2(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)

//go:noescape
func halfProducts4(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)

// productsOf are the products with one type of elements.
type productsOf[W any] struct {
	one, two, four func(n int, x *float32, xStep int, w *W, wStep int, y *float32, yStep int)
}

var (
	products     = productsOf[float32]{products1, products2, products4}
	halfProducts = productsOf[uint16]{halfProducts1, halfProducts2, halfProducts4}
)

func few512(y, x, w MatrixOf[float32]) { few(products, y, x, w.Data, w.RowStride, w.Rows) }

func fewHalves512(y, x MatrixOf[float32], w Halves) {
	few(halfProducts, y, x, w.Data, w.Cols, w.Rows)
}

const fewColumns = 4 // rows of w that are read at once

// few computes the products with rows of w, stride elements apart, four at a time.
func few[W any](p productsOf[W], y, x MatrixOf[float32], w []W, stride, rows int) {
	_, _, _ = x.row(x.Rows-1), y.row(y.Rows - 1)[:rows], w[:(rows-1)*stride+x.Cols] // the assembler must not leave them
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

// column computes the products of all rows of x with four of w.
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
