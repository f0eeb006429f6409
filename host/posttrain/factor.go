package posttrain

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// inverseFactor replaces the symmetric matrix h, [n, n], by the upper triangular factor U with a positive diagonal of its
// inverse, h⁻¹ = Uᵀ·U. It is false where h is not positive definite; h is of no use then.
//
// With the order of rows and columns reversed, the Cholesky factor of h is that of a product of an upper with a lower
// triangle, h = R·Rᵀ. So h⁻¹ = (R⁻¹)ᵀ·R⁻¹ and U = R⁻¹: the inverse itself, which loses digits, is never computed.
func inverseFactor(h []float64, n int) bool {
	for i, j := 0, len(h)-1; i < j; i, j = i+1, j-1 { // reverses rows and columns
		h[i], h[j] = h[j], h[i]
	}
	t, ok := lapack64.Potrf(blas64.Symmetric{Uplo: blas.Upper, N: n, Data: h, Stride: n})
	if !ok || !lapack64.Trtri(t) {
		return false
	}
	// The factor is now Sᵀ of S = R⁻¹ in reversed order, which is a reflection at the other diagonal.
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
