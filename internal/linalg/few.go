package linalg

import "math"

// BFloat16 is a matrix of bfloat16 numbers, the upper halves of float32 numbers. Rows are
// contiguous.
type BFloat16 struct {
	Rows, Cols int
	Data       []uint16
}

// ToBFloat16 converts a matrix with contiguous rows to bfloat16; ok is false if that would change
// an element.
func ToBFloat16(data []float32, rows, cols int) (h BFloat16, ok bool) {
	const lower = 1<<16 - 1
	for _, v := range data { // most matrices that would change are detected at once
		if math.Float32bits(v)&lower != 0 {
			return BFloat16{}, false
		}
	}
	h = BFloat16{rows, cols, make([]uint16, len(data))}
	for i, v := range data {
		h.Data[i] = uint16(math.Float32bits(v) >> 16)
	}
	return h, true
}

// Part returns the submatrix of rows i0 to i1, excluding i1.
func (h BFloat16) Part(i0, i1 int) BFloat16 {
	return BFloat16{i1 - i0, h.Cols, h.Data[i0*h.Cols : i1*h.Cols]}
}

// Part returns the submatrix of rows i0 to i1, excluding i1.
func (m MatrixOf[T]) Part(i0, i1 int) MatrixOf[T] { return m.part(i0, i1, 0, m.Cols) }

// FewTimes sets y to x·wᵀ, where x has few rows. It reads w once, in memory order, and is limited
// by memory bandwidth. Each element of y depends only on its row of x and its row of w. Rows must
// be contiguous.
func FewTimes(y, x, w MatrixOf[float32]) {
	if y.Rows > 0 && y.Cols > 0 {
		active.few(y, x, w)
	}
}

// FewTimesBFloat16 is [FewTimes] for weights in bfloat16, with the same results. It may be called
// only if [HasBFloat16] is true.
func FewTimesBFloat16(y, x MatrixOf[float32], w BFloat16) {
	if y.Rows > 0 && y.Cols > 0 {
		active.fewBFloat16(y, x, w)
	}
}

// HasBFloat16 reports whether this processor has kernels for [FewTimesBFloat16].
func HasBFloat16() bool { return active.fewBFloat16 != nil }

// fewByRows computes FewTimes, with dot for each element of y.
func fewByRows(y, x, w MatrixOf[float32], dot func(x, y []float32) float32) {
	for j := range w.Rows {
		for i := range x.Rows {
			y.Data[i*y.RowStride+j] = dot(x.row(i), w.row(j))
		}
	}
}

// VectorTimes sets y to xᵀ·m, where the rows of m are contiguous.
func VectorTimes(y, x []float32, m MatrixOf[float32]) {
	clear(y[:m.Cols])
	for i, v := range x[:m.Rows] {
		active.single.axpy(v, m.row(i), y)
	}
}
