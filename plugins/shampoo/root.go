package main

import "github.com/cage-qat/cage/sdk/program"

// inverseRoot is (A + εI)^(−power) of each symmetric matrix A of a[n,d,d], by its
// eigenvalues. Where rounding left one of them below ε, all are shifted up until the
// lowest is ε.
func inverseRoot(a program.Value, power, eps float64) program.Value {
	b := a.Builder()
	shape := a.Shape()
	if len(shape) != 3 { // a mistake made this value: the builder knows it
		return a
	}
	a = a.Add(identity(b, shape).Scale(eps))
	w, q := a.EighValues(), a.EighVectors()
	lowest := w.ReduceMin(1).Reshape(shape[0], 1)
	w = w.Sub(lowest.Shift(-eps).Min(b.Const(0)))
	scaled := q.Mul(w.Pow(b.Const(-power)).Reshape(shape[0], 1, shape[2]))
	return scaled.Dot(q, [2][]int{{2}, {2}}, eachBlock)
}

// orElse is root where all of it is finite, and otherwise the previous one, matrix by
// matrix.
func orElse(root, previous program.Value) program.Value {
	shape := root.Shape()
	if len(shape) != 3 {
		return root
	}
	finite := root.IsFinite().Convert(program.Float).ReduceMin(1, 2).Reshape(shape[0], 1, 1)
	return finite.Gt(root.Builder().Const(0)).Select(root, previous)
}

// identity is a unit matrix for each block: shape is [n,d,d].
func identity(b *program.Builder, shape []int) program.Value {
	index := program.Type{DType: program.Int, Shape: shape}
	return b.Iota(index, 1).Eq(b.Iota(index, 2)).Convert(program.Float)
}
