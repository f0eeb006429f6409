package linalg

import (
	"math"

	lapackgonum "gonum.org/v1/gonum/lapack/gonum"
)

// Eigh decomposes the symmetric matrix a, whose ColStride must be 1. It reads only the lower
// triangle. It writes the eigenvalues to values, in ascending order, and replaces the columns of a
// by the eigenvectors. It reports whether the iterations converged.
func Eigh(a Matrix, values []float64) bool {
	n := a.Rows
	scale := normalize(a, true)
	t := reduce(a)
	vt := temporary[float64](n, n)
	defer vt.release()
	if !divide(t.d, t.e, vt) {
		return false
	}
	for i := range n {
		row := a.row(i)
		for j := range row {
			row[j] = vt.Data[j*n+i]
		}
		values[i] = t.d[i] * scale
	}
	t.back(a)
	return true
}

// EighValues is [Eigh] for the eigenvalues only. The content of a is lost.
func EighValues(a Matrix, values []float64) bool {
	scale := normalize(a, true)
	t := reduce(a)
	if !(lapackgonum.Implementation{}).Dsterf(len(t.d), t.d, t.e) {
		return false
	}
	for i, v := range t.d {
		values[i] = v * scale
	}
	return true
}

// panel is the number of Householder reflections that are applied together.
const panel = 32

// reflector turns x into the vector v of the reflection H = I − τvvᵀ that maps x to a multiple β of
// the first unit vector, and returns β and τ. As in LAPACK, v begins with 1, β has the sign
// opposite to that of x's first element, and H is the identity when the rest of x is zero.
func reflector[T Float](x []T) (beta, tau T) {
	alpha, tail := x[0], x[1:]
	scale := T(1)
	dot := kernelsOf[T]().dot
	square := dot(tail, tail)
	// The sum overflowed or underflowed, or x is zero.
	if low, high := squares[T](); square < low || square > high {
		most := math.Abs(float64(alpha))
		zero := true
		for _, v := range tail {
			most = max(most, math.Abs(float64(v)))
			zero = zero && v == 0
		}
		if zero {
			clear(tail)
			x[0] = 1
			return alpha, 0
		}
		_, exponent := math.Frexp(most)
		half := T(math.Ldexp(1, -exponent/2)) // applied twice, as the full power might be out of range
		rest := T(math.Ldexp(1, -exponent+exponent/2))
		for i, v := range x {
			x[i] = v * half * rest
		}
		alpha, scale = x[0], T(math.Ldexp(1, exponent))
		square = dot(tail, tail)
	}
	beta = T(-math.Copysign(math.Sqrt(float64(alpha*alpha+square)), float64(alpha)))
	tau = (beta - alpha) / beta
	for i := range tail {
		tail[i] /= alpha - beta
	}
	x[0] = 1
	return beta * scale, tau
}

// squares returns the range within which a sum of squares is accurate.
func squares[T Float]() (low, high T) {
	span := 1e270
	if single[T]() {
		span = 1e28
	}
	return T(1 / span), T(span)
}

func single[T Float]() bool {
	_, ok := any(T(0)).(float32)
	return ok
}

// compact returns the triangular factor T of the compact WY form I − VTVᵀ of reflections, where the
// rows of vt are the columns of V.
func compact[T Float](vt MatrixOf[T], tau []T) MatrixOf[T] {
	k := vt.Rows
	t, gram := RowMajor(make([]T, k*k), k, k), RowMajor(make([]T, k*k), k, k)
	AddSymmetric(gram, vt, vt.T())
	for j := range k {
		// T[:j,j] = −τ_j·T[:j,:j]·Vᵀ[:j]·v_j
		column := gram.row(j)[:j]
		for i := range j {
			sum := T(0)
			for l, v := range t.row(i)[i:j] {
				sum += v * column[i+l]
			}
			t.Data[i*k+j] = -tau[j] * sum
		}
		t.Data[j*k+j] = tau[j]
	}
	return t
}

// apply replaces c by (I − V·T·Vᵀ)·c, where the rows of vt are the columns of V.
func apply[T Float](c, vt, t MatrixOf[T]) {
	w, tw := temporary[T](vt.Rows, c.Cols), temporary[T](vt.Rows, c.Cols)
	defer w.release()
	defer tw.release()
	MulAdd(w, 1, vt, c)
	MulAdd(tw, 1, t, w)
	MulAdd(c, -1, vt.T(), tw)
}

// tridiagonal is a symmetric matrix reduced to QᵀAQ with diagonal d and off-diagonal e. Q is the
// product of the reflections in blocks, whose vectors begin one row below the block's first column.
type tridiagonal struct {
	d, e   []float64
	blocks []reflections[float64]
}

// band is the number of columns reduced before the trailing matrix is updated. More columns would
// make updates within a panel more expensive.
const band = panel / 2

// reduce computes the tridiagonal form of the symmetric matrix a. It reads and overwrites the lower
// triangle. Columns are reduced panel by panel, and the trailing matrix is updated once per panel
// (LAPACK's dsytrd).
func reduce(a Matrix) tridiagonal {
	n := a.Rows
	t := tridiagonal{d: make([]float64, n), e: make([]float64, max(n-1, 0))}
	for j := 0; j < n-1; j += band {
		cols := min(band, n-1-j)
		vt, wt := t.reducePanel(a, j, cols)
		end := j + cols
		// The vectors begin at row j+1. Update only the lower triangle of the trailing matrix,
		// block by block.
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

// reducePanel reduces cols columns from column j, and returns V and W as rows that begin at row j+1
// of a. The trailing matrix must then be updated to a − VWᵀ − WVᵀ.
func (t *tridiagonal) reducePanel(a Matrix, j, cols int) (vt, wt Matrix) {
	size := a.Rows - j - 1
	vt, wt = RowMajor(make([]float64, cols*size), cols, size),
		RowMajor(make([]float64, cols*size), cols, size)
	tau := make([]float64, cols)
	for k := range cols {
		col := j + k
		x, y := vt.row(k)[k:], wt.row(k)[k:]
		t.d[col] = a.at(col, col)
		for i := range x {
			x[i] = a.at(col+1+i, col)
		}
		for l := range k { // apply the panel's earlier reflections to this column
			v, w := vt.row(l)[k-1:], wt.row(l)[k-1:]
			t.d[col] -= 2 * v[0] * w[0]
			active.double.axpy(-w[0], v[1:], x)
			active.double.axpy(-v[0], w[1:], x)
		}
		t.e[col], tau[k] = reflector(x)
		if tau[k] == 0 {
			continue
		}
		// y = τ·(A − VWᵀ − WVᵀ)·x, minus half its component along x
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

// timesSymmetric adds a·x to y. It reads the lower triangle of a once.
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

func (t *tridiagonal) back(c Matrix) {
	for i := len(t.blocks) - 1; i >= 0; i-- {
		b := t.blocks[i]
		apply(c.part(b.start+1, c.Rows, 0, c.Cols), b.vt, b.t)
	}
}
