package posttrain

import (
	"runtime"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/cage-qat/cage/internal/linalg"
)

// inverseFactor replaces the symmetric matrix h, [n, n], by the upper triangular Cholesky factor U,
// with a positive diagonal, of its inverse, h⁻¹ = Uᵀ·U. If h is not positive definite, it returns
// false, and h is overwritten as well.
//
// The Cholesky factor of h with rows and columns reversed gives a factorization into an upper and a
// lower triangle, h = R·Rᵀ. So h⁻¹ = (R⁻¹)ᵀ·R⁻¹ and U = R⁻¹. The inverse itself is never computed,
// since that would lose digits.
func inverseFactor(h []float64, n int) bool {
	for i, j := 0, len(h)-1; i < j; i, j = i+1, j-1 { // reverses rows and columns
		h[i], h[j] = h[j], h[i]
	}
	t := triangle{h, n}
	if !t.cholesky() || !t.invert() {
		return false
	}
	// The factor is now Uᵀ in reversed order: transposed about the anti-diagonal, it is U.
	for i := range n {
		for j := range n - 1 - i {
			a, b := i*n+j, (n-1-j)*n+n-1-i
			h[a], h[b] = h[b], h[a]
		}
	}
	for i := range n {
		clear(h[i*n : i*n+i])
		if d := h[i*n+i]; !(d > 0) || d-d != 0 {
			return false
		}
	}
	return true
}

// triangle is the upper triangle of an [n, n] matrix. The lower triangle is left unchanged.
//
// Its methods are blocked, so that most of the work is in matrix products; LAPACK handles the
// diagonal blocks.
type triangle struct {
	data []float64
	n    int
}

const (
	diagonal = 192 // rows of a diagonal block
	strip    = 512 // rows or columns of a task, however many processors there are
)

// part returns a view of the rows i0 ≤ i < i1 and columns j0 ≤ j < j1. Neither range may be empty.
func (t triangle) part(i0, i1, j0, j1 int) linalg.Matrix {
	return linalg.Matrix{
		Rows: i1 - i0, Cols: j1 - j0, RowStride: t.n, ColStride: 1, Data: t.data[i0*t.n+j0:],
	}
}

// inverse returns the inverse of a diagonal block, zero below the diagonal; false if singular.
func (t triangle) inverse(from, to int) (linalg.Matrix, bool) {
	m := linalg.RowMajor(make([]float64, (to-from)*(to-from)), to-from, to-from)
	for i := range m.Rows {
		copy(m.Data[i*m.Cols+i:(i+1)*m.Cols], t.data[(from+i)*t.n+from+i:])
	}
	upper := blas64.Triangular{
		Uplo: blas.Upper, Diag: blas.NonUnit, N: m.Rows, Stride: m.Cols, Data: m.Data,
	}
	return m, lapack64.Trtri(upper)
}

// cholesky replaces the matrix A = TᵀT by T. It returns false if A is not positive definite.
func (t triangle) cholesky() bool {
	for from := 0; from < t.n; from += diagonal {
		to := min(from+diagonal, t.n)
		block := t.data[from*t.n+from:]
		a := blas64.Symmetric{Uplo: blas.Upper, N: to - from, Stride: t.n, Data: block}
		if _, ok := lapack64.Potrf(a); !ok {
			return false
		}
		if to == t.n {
			break
		}
		inverse, ok := t.inverse(from, to)
		if !ok {
			return false
		}
		right := t.part(from, to, to, t.n)
		t.multiply(right, inverse.T(), right)
		strips(to, t.n, strip, func(low, high int) { // the trailing submatrix of A, from the diagonal on
			above := t.part(from, to, low, high)
			linalg.MulAdd(t.part(low, high, low, t.n), -1, above.T(), t.part(from, to, low, t.n))
		})
	}
	return true
}

// invert replaces T by its inverse X, from the last rows to the first: X_ii = T_ii⁻¹ and X_ij =
// −X_ii·Σ_k>i T_ik·X_kj.
func (t triangle) invert() bool {
	for from := (t.n - 1) / diagonal * diagonal; from >= 0; from -= diagonal {
		to := min(from+diagonal, t.n)
		inverse, ok := t.inverse(from, to)
		if !ok {
			return false
		}
		if to < t.n {
			right := t.part(from, to, to, t.n)
			sum := linalg.RowMajor(make([]float64, right.Rows*right.Cols), right.Rows, right.Cols)
			strips(to, t.n, strip, func(low, high int) { // columns of X are zero below the diagonal
				for i := low + 1; i < high; i++ {
					clear(t.data[i*t.n+low : i*t.n+i])
				}
				a, b := t.part(from, to, to, high), t.part(to, high, low, high)
				linalg.MulAdd(columns(sum, low-to, high-to), -1, a, b)
			})
			t.multiply(right, inverse, sum)
		}
		for i := range inverse.Rows {
			copy(t.data[(from+i)*t.n+from+i:], inverse.Data[i*inverse.Cols+i:(i+1)*inverse.Cols])
		}
	}
	return true
}

// multiply replaces dst by a·b; dst may be b.
func (t triangle) multiply(dst, a, b linalg.Matrix) {
	strips(0, b.Cols, strip, func(low, high int) {
		product := linalg.RowMajor(make([]float64, a.Rows*(high-low)), a.Rows, high-low)
		linalg.MulAdd(product, 1, a, columns(b, low, high))
		for i := range dst.Rows {
			row := product.Data[i*product.Cols : (i+1)*product.Cols]
			copy(dst.Data[i*dst.RowStride+low:], row)
		}
	})
}

// columns returns a view of the columns low ≤ j < high of a matrix with contiguous rows.
func columns(m linalg.Matrix, low, high int) linalg.Matrix {
	m.Cols, m.Data = high-low, m.Data[low:]
	return m
}

// strips splits a range into strips of a size and calls work on them, on all processors.
func strips(from, to, size int, work func(low, high int)) {
	group := errgroup.Group{}
	group.SetLimit(runtime.GOMAXPROCS(0))
	for low := from; low < to; low += size {
		group.Go(func() error {
			work(low, min(low+size, to))
			return nil
		})
	}
	_ = group.Wait()
}
