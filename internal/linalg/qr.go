package linalg

import "math"

// QR replaces a by the factor Q of its reduced QR decomposition. a must have at least as many rows
// as columns, and ColStride 1. Signs are as in LAPACK's dgeqrf and dorgqr: the diagonal of R may be
// negative.
func QR[T Float](a MatrixOf[T]) {
	if a.Cols == 0 {
		return
	}
	normalize(a, false)
	var blocks []reflections[T]
	for j := 0; j < a.Cols; j += panels {
		b := factorPanels(a, j, min(panels, a.Cols-j))
		apply(a.part(j, a.Rows, b.end, a.Cols), b.vt, b.t.T())
		blocks = append(blocks, b)
	}
	for i := range a.Rows {
		row := a.row(i)
		clear(row)
		if i < a.Cols {
			row[i] = 1
		}
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		apply(a.part(b.start, a.Rows, b.start, a.Cols), b.vt, b.t)
	}
}

// reflections are the Householder reflections for columns start to end, excluding end. Their
// vectors are the rows of vt and begin at row start.
type reflections[T Float] struct {
	start, end int
	vt, t      MatrixOf[T]
}

// panels is the number of columns after which the trailing part of a large matrix is updated. It is
// several panels, because the update is memory-bound.
const panels = 4 * panel

// factorPanels reduces cols columns from column j, panel by panel.
func factorPanels[T Float](a MatrixOf[T], j, cols int) reflections[T] {
	rows, end := a.Rows-j, j+cols
	all := reflections[T]{start: j, end: end, vt: RowMajor(make([]T, cols*rows), cols, rows)}
	var tau []T
	for k := j; k < end; k += panel {
		b := factorPanel(a, k, min(panel, end-k))
		apply(a.part(k, a.Rows, b.end, end), b.vt, b.t.T())
		for i := range b.vt.Rows {
			copy(all.vt.row(k - j + i)[k-j:], b.vt.row(i))
		}
		for i := range b.t.Rows {
			tau = append(tau, b.t.at(i, i))
		}
	}
	all.t = compact(all.vt, tau)
	return all
}

// factorPanel reduces cols columns from column j. R is not needed and not written to a.
func factorPanel[T Float](a MatrixOf[T], j, cols int) reflections[T] {
	rows := a.Rows - j
	vt := RowMajor(make([]T, cols*rows), cols, rows)
	for i := range rows {
		for k, v := range a.row(j + i)[j : j+cols] {
			vt.Data[k*rows+i] = v
		}
	}
	tau := make([]T, cols)
	kernels := kernelsOf[T]()
	for k := range cols {
		v := vt.row(k)[k:]
		_, tau[k] = reflector(v)
		for l := k + 1; l < cols; l++ {
			x := vt.row(l)[k:]
			kernels.axpy(-tau[k]*kernels.dot(v, x), v, x)
		}
		clear(vt.row(k)[:k])
	}
	t := compact(vt, tau)
	return reflections[T]{j, j + cols, vt, t}
}

// normalize divides a, or only its lower triangle, by a power of two so that its largest element is
// about one, and returns that power. It returns 1 if that is unnecessary: for a factorization, if
// no product can overflow or underflow T. A lower triangle belongs to an eigenvalue problem, whose
// zero threshold ([merge.deflate]) assumes elements of about one.
func normalize[T Float](a MatrixOf[T], lower bool) T {
	width := func(i int) int {
		if lower {
			return i + 1
		}
		return a.Cols
	}
	most := 0.0
	for i := range a.Rows {
		for _, v := range a.row(i)[:width(i)] {
			if v := math.Abs(float64(v)); v > most { // faster than max, which must handle NaN
				most = v
			}
		}
	}
	_, exponent := math.Frexp(most)
	safe := 100
	switch {
	case lower:
		safe = 1
	case single[T]():
		safe = 10
	}
	if most == 0 || exponent > -safe && exponent < safe {
		return 1
	}
	for i := range a.Rows {
		row := a.row(i)[:width(i)]
		for j, v := range row {
			row[j] = T(math.Ldexp(float64(v), -exponent))
		}
	}
	return T(math.Ldexp(1, exponent))
}
