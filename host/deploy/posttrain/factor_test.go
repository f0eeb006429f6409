package posttrain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// positive returns a random positive definite matrix.
func positive(n int, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	h := make([]float64, n*n)
	for i := range n {
		for j := range i {
			h[i*n+j] = rng.NormFloat64()
			h[j*n+i] = h[i*n+j]
		}
		h[i*n+i] = 3 * math.Sqrt(float64(n)) // eigenvalues are within 2√n of it
	}
	return h
}

// TestInverseFactor checks that U is upper triangular with a positive diagonal, and that h·Uᵀ·U is
// the identity. There is only one such U.
func TestInverseFactor(t *testing.T) {
	for _, n := range []int{1, 2, 7, diagonal - 1, diagonal, diagonal + 1, strip + 5, 3*diagonal +
		strip} {
		h := positive(n, uint64(n))
		u := slices.Clone(h)
		if !inverseFactor(u, n) {
			t.Errorf("%d: not positive definite", n)
			continue
		}
		var product, inverse mat.Dense
		inverse.Mul(mat.NewDense(n, n, u).T(), mat.NewDense(n, n, u))
		product.Mul(mat.NewDense(n, n, h), &inverse)
		for i := range n {
			for j := range n {
				want := 0.0
				if i == j {
					want = 1
				}
				if math.Abs(product.At(i, j)-want) > 1e-12*float64(n) || j < i && u[i*n+j] != 0 || i == j &&
					u[i*n+j] <= 0 {
					t.Fatalf("%d: h·UᵀU is %v at %d, %d, where U is %v", n, product.At(i, j), i, j, u[i*n+j])
				}
			}
		}
	}
}

// TestNoFactor checks that a matrix with one negative diagonal element anywhere has no factor.
func TestNoFactor(t *testing.T) {
	const n = strip + diagonal + 3
	for _, at := range []int{0, diagonal, n - 1} {
		h := positive(n, 1)
		h[at*n+at] = -1
		if inverseFactor(h, n) {
			t.Errorf("a matrix with −1 at %d has a factor", at)
		}
	}
}

func BenchmarkInverseFactor(b *testing.B) {
	for _, n := range []int{512, 2048} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := positive(n, uint64(n))
			for b.Loop() {
				if !inverseFactor(slices.Clone(h), n) {
					b.Fatal("not positive definite")
				}
			}
			b.ReportMetric(float64(n)*float64(n)*float64(n)*2/3*float64(b.N)/b.Elapsed().Seconds()/1e9,
				"GFLOP/s")
		})
	}
}
