package program

import "slices"

// Reshape gives the same elements, in row-major order, another shape.
func (v Value) Reshape(shape ...int) Value {
	return v.builder().Apply(OpReshape, Attr{}, Type{Shape: shape}, v)
}

// Transpose permutes the axes: axis i of the result is axis perm[i] of v.
func (v Value) Transpose(perm ...int) Value {
	return v.builder().Apply(OpTranspose, Attr{Axes: perm}, Type{}, v)
}

// Broadcast repeats v to the given shape; axes names, for each axis of v, its
// axis in the result. A scalar needs no axes, nor does a value with as many axes as the
// result.
func (v Value) Broadcast(shape, axes []int) Value {
	if rank := v.Type().Rank(); axes == nil && rank == len(shape) {
		axes = OtherAxes(rank)
	}
	return v.builder().Apply(OpBroadcast, Attr{Axes: axes}, Type{Shape: shape}, v)
}

// Slice takes elements start, start+stride, … below limit on each axis.
func (v Value) Slice(start, limit, stride []int) Value {
	return v.builder().Apply(OpSlice, Attr{Start: start, Limit: limit, Stride: stride}, Type{}, v)
}

// Concatenate joins v and others along an axis.
func (v Value) Concatenate(axis int, others ...Value) Value {
	args := append([]Value{v}, others...)
	return v.builder().Apply(OpConcatenate, Attr{Axes: []int{axis}}, Type{}, args...)
}

// Sum folds the axes (increasing) by addition; they disappear from the shape.
func (v Value) Sum(axes ...int) Value { return v.reduce(OpReduceSum, axes) }

// ReduceMax folds the axes by maximum.
func (v Value) ReduceMax(axes ...int) Value { return v.reduce(OpReduceMax, axes) }

// ReduceMin folds the axes by minimum.
func (v Value) ReduceMin(axes ...int) Value { return v.reduce(OpReduceMin, axes) }

// SumAll is the sum of all elements, a scalar.
func (v Value) SumAll() Value { return v.all(OpReduceSum) }

// MaxAll is the maximum of all elements, a scalar.
func (v Value) MaxAll() Value { return v.all(OpReduceMax) }

// MinAll is the minimum of all elements, a scalar.
func (v Value) MinAll() Value { return v.all(OpReduceMin) }

func (v Value) all(op Op) Value {
	if v.Type().IsScalar() {
		return v
	}
	return v.reduce(op, OtherAxes(v.Type().Rank()))
}

// OtherAxes lists the axes below rank that are in none of the lists; without lists, all.
func OtherAxes(rank int, lists ...[]int) []int {
	named := slices.Concat(lists...)
	var axes []int
	for i := range rank {
		if !slices.Contains(named, i) {
			axes = append(axes, i)
		}
	}
	return axes
}

// MeanRow is the mean over the last axis, which is kept with one element, so that the
// result combines with v: float[…,d] gives float[…,1].
func (v Value) MeanRow() Value {
	d := v.lastDim()
	return v.keepLast(OpReduceSum).Scale(1 / float64(d))
}

// MaxRow is the maximum over the last axis, which is kept with one element.
func (v Value) MaxRow() Value { return v.keepLast(OpReduceMax) }

// MinRow is the minimum over the last axis, which is kept with one element.
func (v Value) MinRow() Value { return v.keepLast(OpReduceMin) }

func (v Value) reduce(op Op, axes []int) Value {
	return v.builder().Apply(op, Attr{Axes: axes}, Type{}, v)
}

func (v Value) lastDim() int {
	shape := v.Type().Shape
	if len(shape) == 0 {
		return 1
	}
	return shape[len(shape)-1]
}

func (v Value) keepLast(op Op) Value {
	shape := v.Shape()
	if len(shape) == 0 {
		return v.reduce(op, []int{0}) // fails with the operation's own message
	}
	last := len(shape) - 1
	shape[last] = 1
	return v.reduce(op, []int{last}).Reshape(shape...)
}

// Dot is the general product; see [OpDot].
func (v Value) Dot(o Value, contract, batch [2][]int) Value {
	return v.builder().Apply(OpDot, Attr{
		LhsContract: contract[0], RhsContract: contract[1],
		LhsBatch: batch[0], RhsBatch: batch[1],
	}, Type{}, v, o)
}

// MatMul is the matrix product of two matrices: float[m,k]·float[k,n].
func (v Value) MatMul(o Value) Value {
	return v.Dot(o, [2][]int{{1}, {0}}, [2][]int{})
}

// Hadamard rotates each block of the last axis by the normalized Walsh–Hadamard
// matrix in natural order, which is its own inverse.
func (v Value) Hadamard(block int) Value {
	return v.builder().Apply(OpHadamard, Attr{Block: block}, Type{}, v)
}

// QR is the factor Q of the thin QR decomposition of the last two axes.
func (v Value) QR() Value { return v.unary(OpQR) }

// EighValues are the eigenvalues of symmetric matrices, ascending.
func (v Value) EighValues() Value { return v.unary(OpEighValues) }

// EighVectors are the eigenvectors of symmetric matrices, as columns.
func (v Value) EighVectors() Value { return v.unary(OpEighVectors) }

// SortColumns puts the columns of matrices in the descending order of keys, which has one
// key for each column.
func (v Value) SortColumns(keys Value) Value { return v.binary(OpSortColumns, keys) }
