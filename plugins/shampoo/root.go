package main

import "github.com/cage-qat/cage/sdk/program"

// inverseRoot is (A + εI)^(−power) of each symmetric matrix A, whose eigenvalues are
// w[n,d] and eigenvectors q[n,d,d]. Where rounding left an eigenvalue of A + εI below ε,
// all are shifted up until the lowest is ε. Where A or its root is not finite, the
// previous root is kept.
func inverseRoot(w, q, previous program.Value, power, eps float64) program.Value {
	b := w.Builder()
	shape := q.Shape()
	if len(shape) != 3 { // the builder has recorded a mistake
		return q
	}
	lowest := w.ReduceMin(1).Reshape(shape[0], 1)
	w = w.Sub(lowest.Min(b.Const(0))).Shift(eps).Pow(b.Const(-power / 2))
	// If A is not finite, neither are its eigenvalues, and these are fewer to check.
	finite := w.Square().IsFinite().Convert(program.Float).ReduceMin(1).Reshape(shape[0], 1, 1)
	half := q.Mul(w.Reshape(shape[0], 1, shape[2]))
	root := half.Dot(half, [2][]int{{2}, {2}}, eachBlock)
	return finite.Gt(b.Const(0)).Select(root, previous)
}

// identity is a unit matrix for each block: shape is [n,d,d].
func identity(b *program.Builder, shape []int) program.Value {
	index := program.Type{DType: program.Int, Shape: shape}
	return b.Iota(index, 1).Eq(b.Iota(index, 2)).Convert(program.Float)
}
