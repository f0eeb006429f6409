package linalg

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

func unit(rows, cols int) Matrix {
	m := RowMajor(make([]float64, rows*cols), rows, cols)
	for i := range min(rows, cols) {
		m.Data[i*cols+i] = 1
	}
	return m
}

func clone(m Matrix) Matrix {
	return RowMajor(append([]float64{}, m.Data...), m.Rows, m.Cols)
}

// lapackQ returns gonum's factor Q.
func lapackQ(m Matrix) Matrix {
	q := clone(m)
	a := blas64.General{Rows: q.Rows, Cols: q.Cols, Stride: q.Cols, Data: q.Data}
	tau, work := make([]float64, q.Cols), make([]float64, 64*q.Cols)
	lapack64.Geqrf(a, tau, work, len(work))
	lapack64.Orgqr(a, tau, work, len(work))
	return q
}

// hard returns matrices that are difficult to factorize.
func hard(rows, cols int) map[string]Matrix {
	low := RowMajor(make([]float64, rows*cols), rows, cols)
	MulAdd(low, 1, normal(4, rows, 2), normal(5, 2, cols))
	graded := normal(6, rows, cols)
	for i := range graded.Data {
		graded.Data[i] *= math.Pow(10, -float64(i%cols))
	}
	huge, tiny := normal(7, rows, cols), normal(8, rows, cols)
	for i := range huge.Data {
		huge.Data[i] *= 1e300
		tiny.Data[i] *= 1e-305
	}
	return map[string]Matrix{
		"zero": RowMajor(make([]float64, rows*cols), rows, cols), "unit": unit(rows, cols),
		"low rank": low, "graded": graded, "huge": huge, "tiny": tiny, "normal": normal(9, rows, cols),
	}
}

// factors checks the factor q of a, which it scales as QR does: q must have orthonormal columns,
// qᵀ·a must be triangular, and q·qᵀ·a must equal a.
func factors(t *testing.T, what string, q, a Matrix, orthonormal, tolerance float64) {
	t.Helper()
	rows, cols := a.Rows, a.Cols
	gram := RowMajor(make([]float64, cols*cols), cols, cols)
	MulAdd(gram, 1, q.T(), q)
	near(t, what+": QᵀQ", gram, unit(cols, cols), orthonormal)
	scaled := clone(a)
	normalize(scaled, false)
	r, back := RowMajor(make([]float64, cols*cols), cols, cols),
		RowMajor(make([]float64, rows*cols), rows, cols)
	MulAdd(r, 1, q.T(), scaled)
	MulAdd(back, 1, q, r)
	near(t, what+": QR", back, scaled, tolerance)
	for i := range cols {
		for j := range i {
			if math.Abs(r.at(i, j)) > tolerance {
				t.Fatalf("%s: R[%d][%d] = %v", what, i, j, r.at(i, j))
			}
		}
	}
}

func TestQR(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][2]int{{1, 1}, {2, 2}, {5, 3}, {33, 32}, {64, 64}, {130, 70}, {100, 100},
			{300, 270}} {
			rows, cols := n[0], n[1]
			if testing.Short() && rows > 130 {
				continue
			}
			for name, a := range hard(rows, cols) {
				what := fmt.Sprint(name, n)
				q := clone(a)
				QR(q)
				if name == "normal" || name == "unit" || name == "zero" {
					near(t, what+": Q beside LAPACK's", q, lapackQ(a), 1e-11)
				}
				factors(t, what, q, a, 1e-13, 1e-13)
			}
		}
	})
}

// TestQRSingle checks that columns are orthonormal and R is triangular, within the precision of
// float32.
func TestQRSingle(t *testing.T) {
	testlevel.Long(t, "factors large matrices")
	each(t, func(t *testing.T) {
		for _, n := range [][2]int{{1, 1}, {5, 3}, {33, 32}, {130, 70}, {100, 100}, {300, 270}} {
			rows, cols := n[0], n[1]
			for name, a := range hard(rows, cols) {
				what := fmt.Sprint(name, n)
				q := clone(a)
				QRSingle(q)
				factors(t, what, q, a, 5e-6, 2e-5)
			}
		}
	})
}

func BenchmarkQR(b *testing.B) {
	for _, n := range []int{256, 768} {
		a := normal(1, n, n)
		run := func(name string, f func(Matrix)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					f(clone(a))
				}
				flops(b, 8./3*float64(n)*float64(n)*float64(n))
			})
		}
		run("linalg", QR[float64])
		run("single", QRSingle)
		run("gonum", func(m Matrix) { lapackQ(m) })
	}
}
