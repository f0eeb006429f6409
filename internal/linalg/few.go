package linalg

import "math"

// Halves is a matrix stored in bfloat16: each element is the upper half of a float32 number. Rows
// are contiguous.
type Halves struct {
	Rows, Cols int
	Data       []uint16
}

// Halve stores a matrix with contiguous rows in half the memory; ok is false if that would change
// an element.
func Halve(data []float32, rows, cols int) (h Halves, ok bool) {
	const lower = 1<<16 - 1
	for _, v := range data { // most matrices that cannot be halved are detected at once
		if math.Float32bits(v)&lower != 0 {
			return Halves{}, false
		}
	}
	h = Halves{rows, cols, make([]uint16, len(data))}
	for i, v := range data {
		h.Data[i] = uint16(math.Float32bits(v) >> 16)
	}
	return h, true
}

// Part returns the submatrix of the rows from i0 to before i1.
func (h Halves) Part(i0, i1 int) Halves {
	return Halves{i1 - i0, h.Cols, h.Data[i0*h.Cols : i1*h.Cols]}
}

// Part returns the submatrix of the rows from i0 to before i1.
func (m MatrixOf[T]) Part(i0, i1 int) MatrixOf[T] { return m.part(i0, i1, 0, m.Cols) }

// FewTimes sets y to x·wᵀ, where x has few rows. It reads w once, in memory order, and its speed
// is that of reading w. Each element is the inner product of two rows, and does not depend on other
// rows. Rows must be contiguous.
func FewTimes(y, x, w MatrixOf[float32]) {
	if y.Rows > 0 && y.Cols > 0 {
		active.few(y, x, w)
	}
}

// FewTimesHalves is [FewTimes] with w in half the memory, and with the same results. It requires
// [ReadsHalves].
func FewTimesHalves(y, x MatrixOf[float32], w Halves) {
	if y.Rows > 0 && y.Cols > 0 {
		active.fewHalves(y, x, w)
	}
}

// ReadsHalves reports whether this processor has kernels for [FewTimesHalves].
func ReadsHalves() bool { return active.fewHalves != nil }

// fewByRows computes FewTimes by inner products of two rows.
func fewByRows(y, x, w MatrixOf[float32], dot func(x, y []float32) float32) {
	for j := range w.Rows {
		for i := range x.Rows {
			y.Data[i*y.RowStride+j] = dot(x.row(i), w.row(j))
		}
	}
}

// Dot returns the inner product of two vectors of the same length.
func Dot[T Float](x, y []T) T { return kernelsOf[T]().dot(x, y) }

// VectorTimes sets y to xᵀ·m for a matrix with contiguous rows. y has an element for each column
// of m.
func VectorTimes(y, x []float32, m MatrixOf[float32]) {
	clear(y[:m.Cols])
	for i, v := range x[:m.Rows] {
		active.single.axpy(v, m.row(i), y)
	}
}
