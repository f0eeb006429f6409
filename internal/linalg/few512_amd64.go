//go:build amd64 && goexperiment.simd

package linalg

import "unsafe"

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
