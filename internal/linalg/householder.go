package linalg

import "math"

// panel is the number of Householder reflections that are applied together.
const panel = 32

// reflector turns x into the vector v of the reflection H = I − τvvᵀ that maps x to a
// multiple β of the first unit vector, and returns β and τ. As in LAPACK, v begins
// with 1, β has the sign opposite to that of x's first element, and H is the identity
// when the rest of x is zero.
func reflector[T Float](x []T) (beta, tau T) {
	alpha, tail := x[0], x[1:]
	scale := T(1)
	dot := kernelsOf[T]().dot
	square := dot(tail, tail)
	if low, high := squares[T](); square < low || square > high { // they left the range of T, or x is zero
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
		half := T(math.Ldexp(1, -exponent/2)) // twice, as one power might be out of range
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

// squares is the range in which a sum of squares has lost nothing that matters.
func squares[T Float]() (low, high T) {
	span := 1e270
	if single[T]() {
		span = 1e28
	}
	return T(1 / span), T(span)
}

// single reports whether T is float32.
func single[T Float]() bool {
	_, ok := any(T(0)).(float32)
	return ok
}

// compact is the triangular T with which reflections H₁…H_k = I − VTVᵀ. The rows of vt
// are the vectors.
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

// apply replaces c by (I − V·T·Vᵀ)·c, with the rows of vt the columns of V.
func apply[T Float](c, vt, t MatrixOf[T]) {
	w, tw := temporary[T](vt.Rows, c.Cols), temporary[T](vt.Rows, c.Cols)
	defer w.release()
	defer tw.release()
	MulAdd(w, 1, vt, c)
	MulAdd(tw, 1, t, w)
	MulAdd(c, -1, vt.T(), tw)
}
