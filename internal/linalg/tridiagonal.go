package linalg

// tridiagonal is a symmetric matrix reduced to QᵀAQ with diagonal d and off-diagonal
// e. Q is the product of the reflections, the block at column j of which begin at row
// j + 1.
type tridiagonal struct {
	d, e   []float64
	blocks []reflections[float64]
}

// band is the number of columns that are reduced before the rest of the matrix is renewed.
// What a panel does to its own columns grows with it.
const band = panel / 2

// reduce computes the tridiagonal form of the symmetric matrix a, of which it reads
// and destroys the lower triangle: panels of columns are reduced one after the other,
// and the rest of the matrix is renewed once for each panel (LAPACK's dsytrd).
func reduce(a Matrix) tridiagonal {
	n := a.Rows
	t := tridiagonal{d: make([]float64, n), e: make([]float64, max(n-1, 0))}
	for j := 0; j < n-1; j += band {
		cols := min(band, n-1-j)
		vt, wt := t.reducePanel(a, j, cols)
		end := j + cols
		// The vectors begin at row j+1; of the rest of the matrix, only the lower
		// triangle is renewed, block by block.
		for i := end; i < n; i += blockRows {
			to := min(i+blockRows, n)
			c := a.part(i, to, end, to)
			v, w := vt.part(0, cols, i-j-1, to-j-1), wt.part(0, cols, i-j-1, to-j-1)
			MulAdd(c, -1, v.T(), wt.part(0, cols, end-j-1, to-j-1))
			MulAdd(c, -1, w.T(), vt.part(0, cols, end-j-1, to-j-1))
		}
	}
	if n > 0 {
		t.d[n-1] = a.at(n-1, n-1)
	}
	return t
}

// reducePanel reduces the columns from j and returns V and W, as rows that begin at
// row j+1 of a, with which the rest of a becomes a − VWᵀ − WVᵀ.
func (t *tridiagonal) reducePanel(a Matrix, j, cols int) (vt, wt Matrix) {
	size := a.Rows - j - 1
	vt, wt = RowMajor(make([]float64, cols*size), cols, size), RowMajor(make([]float64, cols*size), cols, size)
	tau := make([]float64, cols)
	for k := range cols {
		col := j + k
		x, y := vt.row(k)[k:], wt.row(k)[k:]
		t.d[col] = a.at(col, col)
		for i := range x {
			x[i] = a.at(col+1+i, col)
		}
		for l := range k { // what the panel's first reflections make of this column
			v, w := vt.row(l)[k-1:], wt.row(l)[k-1:]
			t.d[col] -= 2 * v[0] * w[0]
			active.double.axpy(-w[0], v[1:], x)
			active.double.axpy(-v[0], w[1:], x)
		}
		t.e[col], tau[k] = reflector(x)
		if tau[k] == 0 {
			continue
		}
		// y = τ·(A − VWᵀ − WVᵀ)·x, less its half along x
		timesSymmetric(y, a.part(col+1, a.Rows, col+1, a.Rows), x)
		for l := range k {
			v, w := vt.row(l)[k:], wt.row(l)[k:]
			p, q := active.double.dot(w, x), active.double.dot(v, x)
			active.double.axpy(-p, v, y)
			active.double.axpy(-q, w, y)
		}
		for i := range y {
			y[i] *= tau[k]
		}
		active.double.axpy(-tau[k]/2*active.double.dot(y, x), x, y)
	}
	t.blocks = append(t.blocks, reflections[float64]{j, j + cols, vt, compact(vt, tau)})
	return vt, wt
}

// timesSymmetric adds a·x to y, reading the lower triangle of a once.
func timesSymmetric(y []float64, a Matrix, x []float64) {
	i := 0
	for ; i+4 <= a.Rows; i += 4 {
		r := a.Data[i*a.RowStride:]
		s := a.RowStride
		r0, r1, r2, r3 := r[:i+4], r[s:s+i+4], r[2*s:2*s+i+4], r[3*s:3*s+i+4]
		sum := active.four(r0[:i], r1, r2, r3, x, y, (*[4]float64)(x[i:]))
		d := (*[4]float64)(x[i:])
		y[i] += sum[0] + r0[i]*d[0] + r1[i]*d[1] + r2[i]*d[2] + r3[i]*d[3]
		y[i+1] += sum[1] + r1[i]*d[0] + r1[i+1]*d[1] + r2[i+1]*d[2] + r3[i+1]*d[3]
		y[i+2] += sum[2] + r2[i]*d[0] + r2[i+1]*d[1] + r2[i+2]*d[2] + r3[i+2]*d[3]
		y[i+3] += sum[3] + r3[i]*d[0] + r3[i+1]*d[1] + r3[i+2]*d[2] + r3[i+3]*d[3]
	}
	for ; i < a.Rows; i++ {
		row := a.Data[i*a.RowStride:][:i+1]
		y[i] += active.double.dot(row, x)
		active.double.axpy(x[i], row[:i], y)
	}
}

// back replaces c, with as many rows as the matrix, by Q·c.
func (t *tridiagonal) back(c Matrix) {
	for i := len(t.blocks) - 1; i >= 0; i-- {
		b := t.blocks[i]
		apply(c.part(b.start+1, c.Rows, 0, c.Cols), b.vt, b.t)
	}
}
