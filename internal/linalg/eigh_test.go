package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// lapackEigh returns gonum's decomposition.
func lapackEigh(a Matrix) (values []float64, vectors Matrix) {
	v := clone(a)
	values = make([]float64, a.Rows)
	work := make([]float64, 64*a.Rows)
	s := blas64.Symmetric{Uplo: blas.Lower, N: v.Rows, Stride: v.Rows, Data: v.Data}
	lapack64.Syev(lapack.EVCompute, s, values, work, len(work))
	return values, v
}

// spectrum returns a symmetric matrix with the given eigenvalues.
func spectrum(values []float64) Matrix {
	n := len(values)
	q := normal(uint64(n), n, n)
	QR(q)
	qd := clone(q)
	for i := range qd.Data {
		qd.Data[i] *= values[i%n]
	}
	a := RowMajor(make([]float64, n*n), n, n)
	MulAdd(a, 1, qd, q.T())
	for i := range n {
		for j := range i {
			a.Data[j*n+i] = a.Data[i*n+j]
		}
	}
	return a
}

// symmetric returns matrices that are difficult to decompose.
func symmetric(n int) map[string]Matrix {
	all := map[string]Matrix{}
	of := func(name string, value func(i int) float64) {
		values := make([]float64, n)
		for i := range values {
			values[i] = value(i)
		}
		all[name] = spectrum(values)
	}
	of("spread", func(i int) float64 { return float64(i) - float64(n)/3 })
	of("clustered", func(i int) float64 { return float64(i%3) + 1e-14*float64(i) })
	of("one and small", func(i int) float64 { return []float64{1, 1e-12}[min(i, 1)] })
	of("graded", func(i int) float64 { return math.Pow(0.7, float64(i)) })
	of("rank 5", func(i int) float64 { return []float64{1, 2, 3, 4, 5, 0}[min(i, 5)] })
	of("signs", func(i int) float64 { return 1 - 2*float64(i%2) })
	noise := normal(3, n, n)
	gram := RowMajor(make([]float64, n*n), n, n)
	MulAdd(gram, 1, noise, noise.T())
	all["gram"] = gram
	for name, scale := range map[string]float64{"huge": 1e300, "large": 1e9, "small": 1e-8,
		"smaller": 1e-12, "far smaller": 1e-20, "tiny": 1e-305} {
		m := clone(gram)
		for i := range m.Data {
			m.Data[i] *= scale
		}
		all[name] = m
	}
	all["zero"], all["unit"] = RowMajor(make([]float64, n*n), n, n), unit(n, n)
	chain, wilkinson, apart := unit(n, n), unit(n, n), unit(n, n)
	for i := range n {
		chain.Data[i*n+i] = 2
		wilkinson.Data[i*n+i] = math.Abs(float64(i) - float64(n-1)/2)
		apart.Data[i*n+i] = float64(i / 7)
		if i > 0 {
			chain.Data[i*n+i-1], chain.Data[(i-1)*n+i] = -1, -1
			wilkinson.Data[i*n+i-1], wilkinson.Data[(i-1)*n+i] = 1, 1
			small := math.Pow(10, -float64(i%20))
			apart.Data[i*n+i-1], apart.Data[(i-1)*n+i] = small, small
		}
	}
	all["chain"], all["wilkinson"], all["apart"] = chain, wilkinson, apart
	return all
}

func TestEigh(t *testing.T) {
	testlevel.Long(t, "factors large matrices")
	each(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 5, 32, 33, 40, 65, 100, 150} {
			for name, a := range symmetric(n) {
				checkEigh(t, fmt.Sprint(name, " ", n), a)
			}
		}
	})
}

// checkEigh checks that residuals and orthogonality are those of a backward stable method, and that
// the eigenvalues agree with those of QR iteration.
func checkEigh(t *testing.T, what string, a Matrix) {
	t.Helper()
	n := a.Rows
	v, given, values := clone(a), clone(a), make([]float64, n)
	a = clone(a)
	// Scale only the matrix for the comparison, so that its squares stay in range. Eigh gets the
	// original matrix.
	scale := normalize(a, true)
	for i := range n {
		for j := range i {
			a.Data[j*n+i] = a.Data[i*n+j]
		}
	}
	norm := math.Sqrt(dotPortable(a.Data, a.Data))
	for i := range n { // only the lower triangle may be read
		for j := range i {
			v.Data[j*n+i] = math.NaN()
		}
	}
	if !Eigh(v, values) {
		t.Fatalf("%s: no convergence", what)
	}
	if !slices.IsSorted(values) {
		t.Fatalf("%s: the eigenvalues %v are not ascending", what, values)
	}
	scaleBack := func(values []float64) {
		for i := range values {
			values[i] /= scale
		}
	}
	scaleBack(values)
	gram, av, vd := RowMajor(make([]float64, n*n), n, n), RowMajor(make([]float64, n*n), n, n),
		clone(v)
	MulAdd(gram, 1, v.T(), v)
	near(t, what+": VᵀV", gram, unit(n, n), 2e-14*math.Sqrt(float64(n)))
	MulAdd(av, 1, a, v)
	for i := range vd.Data {
		vd.Data[i] *= values[i%n]
	}
	near(t, what+": AV and V·diag(w)", av, vd, 1e-14*norm)
	want, _ := lapackEigh(a)
	near(t, what+": eigenvalues", RowMajor(values, 1, n), RowMajor(want, 1, n), 1e-14*norm)
	alone := make([]float64, n)
	if !EighValues(given, alone) {
		t.Fatalf("%s: no convergence", what)
	}
	scaleBack(alone)
	near(t, what+": eigenvalues alone", RowMajor(alone, 1, n), RowMajor(want, 1, n), 1e-14*norm)
}

// TestEighLarge decomposes Gram matrices of realistic size, one of them of low rank.
func TestEighLarge(t *testing.T) {
	for name, inner := range map[string]int{"full": 400, "low rank": 60} {
		g := normal(5, 300, inner)
		a := RowMajor(make([]float64, 300*300), 300, 300)
		MulAdd(a, 1, g, g.T())
		checkEigh(t, name, a)
	}
}

// TestEighOfTridiagonals decomposes matrices with equal, close and distant diagonal elements and
// off-diagonal elements of all magnitudes, so that every kind of deflation and of root occurs.
func TestEighOfTridiagonals(t *testing.T) {
	each(t, func(t *testing.T) {
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 8))
			n := 33 + r.IntN(80)
			a := unit(n, n)
			steep, apart := 20*r.Float64(), math.Pow(10, -17*r.Float64())
			for i := range n {
				a.Data[i*n+i] = float64(r.IntN(3)) + apart*r.NormFloat64()
				if i > 0 {
					e := r.NormFloat64() * math.Pow(10, -steep*r.Float64())
					a.Data[i*n+i-1], a.Data[(i-1)*n+i] = e, e
				}
			}
			checkEigh(t, fmt.Sprint("seed ", seed), a)
		}
	})
}

func BenchmarkEigh(b *testing.B) {
	for _, n := range []int{256, 768} {
		noise := normal(3, n, n)
		gram := RowMajor(make([]float64, n*n), n, n)
		MulAdd(gram, 1, noise, noise.T())
		values := make([]float64, n)
		run := func(name string, f func(Matrix)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					f(clone(gram))
				}
			})
		}
		run("linalg", func(m Matrix) { Eigh(m, values) })
		run("reduce", func(m Matrix) { reduce(m) })
		run("gonum", func(m Matrix) { lapackEigh(m) })
	}
}
