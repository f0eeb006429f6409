package linalg

import "math"

// panel is the number of Householder reflections that are applied together.
const panel = 32

// reflector turns x into the vector v of the reflection H = I − τvvᵀ that maps x to a
// multiple β of the first unit vector, and returns β and τ. As in LAPACK, v begins
// with 1, β has the sign opposite to that of x's first element, and H is the identity
// when the rest of x is zero.
func reflector(x []float64) (beta, tau float64) {
	alpha, tail := x[0], x[1:]
	scale := 1.0
	square := active.dot(tail, tail)
	if square < 1e-270 || square > 1e270 { // the squares left the range of float64, or x is zero
		most := math.Abs(alpha)
		zero := true
		for _, v := range tail {
			most = max(most, math.Abs(v))
			zero = zero && v == 0
		}
		if zero {
			clear(tail)
			x[0] = 1
			return alpha, 0
		}
		_, exponent := math.Frexp(most)
		half := math.Ldexp(1, -exponent/2) // twice, as one power might be out of range
		rest := math.Ldexp(1, -exponent+exponent/2)
		for i, v := range x {
			x[i] = v * half * rest
		}
		alpha, scale = x[0], math.Ldexp(1, exponent)
		square = active.dot(tail, tail)
	}
	beta = -math.Copysign(math.Sqrt(alpha*alpha+square), alpha)
	tau = (beta - alpha) / beta
	for i := range tail {
		tail[i] /= alpha - beta
	}
	x[0] = 1
	return beta * scale, tau
}

// compact is the triangular T, of order k and stored with rows of length panel, with
// which reflections H₁…H_k = I − VTVᵀ. The rows of vt are the vectors.
func compact(t []float64, vt Matrix, tau []float64) Matrix {
	k := vt.Rows
	clear(t[:k*panel])
	gram := RowMajor(make([]float64, k*k), k, k)
	MulAdd(gram, 1, vt, vt.T())
	for j := range k {
		// T[:j,j] = −τ_j·T[:j,:j]·Vᵀ[:j]·v_j
		for i := range j {
			sum := 0.0
			for l := i; l < j; l++ {
				sum += t[i*panel+l] * gram.Data[l*k+j]
			}
			t[i*panel+j] = -tau[j] * sum
		}
		t[j*panel+j] = tau[j]
	}
	return Matrix{Rows: k, Cols: k, RowStride: panel, ColStride: 1, Data: t}
}

// apply replaces c by (I − V·T·Vᵀ)·c, with the rows of vt the columns of V.
func apply(c, vt, t Matrix) {
	w, tw := temporary(vt.Rows, c.Cols), temporary(vt.Rows, c.Cols)
	defer w.release()
	defer tw.release()
	MulAdd(w, 1, vt, c)
	MulAdd(tw, 1, t, w)
	MulAdd(c, -1, vt.T(), tw)
}
