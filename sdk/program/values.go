package program

import (
	"fmt"
	"math"
	"slices"
)

// Const returns a scalar float.
func (b *Builder) Const(v float64) Value { return b.scalar(Float, v, 0) }

// ConstInt returns a scalar int.
func (b *Builder) ConstInt(v int32) Value { return b.scalar(Int, 0, int64(v)) }

// ConstUint returns a scalar uint.
func (b *Builder) ConstUint(v uint32) Value { return b.scalar(Uint, 0, int64(v)) }

func (b *Builder) scalar(t DType, f float64, i int64) Value {
	key := fmt.Sprint(t, f, i)
	if id, ok := b.memo[key]; ok && b.err == nil {
		return Value{b, id}
	}
	attr := Attr{Ints: []int64{i}}
	if t == Float {
		attr = Attr{Floats: []float64{f}}
	}
	v := b.Apply(OpConstant, attr, Type{DType: t})
	if b.err == nil {
		b.memo[key] = v.id
	}
	return v
}

// Full returns a float value of the given shape filled with v.
func (b *Builder) Full(v float64, shape ...int) Value {
	return b.Apply(OpConstant, Attr{Floats: []float64{v}}, FloatType(shape...))
}

// Zeros returns a float value of the given shape filled with 0.
func (b *Builder) Zeros(shape ...int) Value { return b.Full(0, shape...) }

// Table returns a constant float value; data has all its elements in row-major order.
func (b *Builder) Table(data []float64, shape ...int) Value {
	return b.Apply(OpConstant, Attr{Floats: append([]float64(nil), data...)}, FloatType(shape...))
}

func (v Value) unary(op Op) Value { return v.Builder().Apply(op, Attr{}, Type{}, v) }

func (v Value) binary(op Op, o Value) Value { return v.Builder().Apply(op, Attr{}, Type{}, v, o) }

// Scale returns c·v for a literal c.
func (v Value) Scale(c float64) Value { return v.Mul(v.Builder().Const(c)) }

// Shift returns v + c for a literal c.
func (v Value) Shift(c float64) Value { return v.Add(v.Builder().Const(c)) }

// Square returns v·v.
func (v Value) Square() Value { return v.Mul(v) }

// Clip is [Value.Clamp] with literal bounds. As there, the result for NaN is not defined.
func (v Value) Clip(lo, hi float64) Value {
	b := v.Builder()
	switch {
	case math.IsNaN(lo) || math.IsNaN(hi):
		return b.fail(fmt.Errorf("clip to [%v, %v]: neither bound may be NaN", lo, hi))
	case lo > hi:
		return b.fail(fmt.Errorf("clip to [%v, %v]: the lower bound must not be above the upper", lo, hi))
	}
	return v.Clamp(b.Const(lo), b.Const(hi))
}

// At returns the elements start, start+1, …, limit−1 along one axis.
func (v Value) At(axis, start, limit int) Value {
	shape := v.Shape()
	if axis < 0 || axis >= len(shape) {
		return v.Builder().fail(fmt.Errorf("at: axis %d does not exist: the rank is %d",
			axis, len(shape)))
	}
	starts, strides := make([]int, len(shape)), slices.Repeat([]int{1}, len(shape))
	starts[axis], shape[axis] = start, limit
	return v.Slice(starts, shape, strides)
}

// Column returns element i of each row. The last axis is kept with one element, so that the result
// combines with v: float[…,d] gives float[…,1].
func (v Value) Column(i int) Value { return v.At(v.Type().Rank()-1, i, i+1) }

// Sums, means, maxima and minima come in three forms. SumAll and the like give a scalar. SumRow and
// the like reduce the last axis, which is kept with size 1, so that the result broadcasts with v.
// ReduceSum and the like reduce the given axes, which are removed.

// SumAll returns the sum of all elements, a scalar.
func (v Value) SumAll() Value { return v.all(OpReduceSum) }

// MeanAll returns the mean of all elements, a scalar.
func (v Value) MeanAll() Value { return v.SumAll().Scale(1 / float64(v.Type().Size())) }

// MaxAll returns the maximum of all elements, a scalar.
func (v Value) MaxAll() Value { return v.all(OpReduceMax) }

// MinAll returns the minimum of all elements, a scalar.
func (v Value) MinAll() Value { return v.all(OpReduceMin) }

func (v Value) all(op Op) Value {
	if v.Type().IsScalar() {
		return v
	}
	return v.reduce(op, OtherAxes(v.Type().Rank()))
}

// OtherAxes returns the axes below rank that are in none of the lists.
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

// SumRow returns the sum over the last axis, which is kept with one element, so that the
// result combines with v: float[…,d] gives float[…,1].
func (v Value) SumRow() Value { return v.keepLast(OpReduceSum) }

// MeanRow returns the mean over the last axis, which is kept with one element.
func (v Value) MeanRow() Value { return v.SumRow().Scale(1 / float64(v.lastDim())) }

// MaxRow returns the maximum over the last axis, which is kept with one element.
func (v Value) MaxRow() Value { return v.keepLast(OpReduceMax) }

// MinRow returns the minimum over the last axis, which is kept with one element.
func (v Value) MinRow() Value { return v.keepLast(OpReduceMin) }

// ArgMinRow returns the index, an int, of the least element along the last axis, which is kept with
// one element: for ties the first index, and for a row with NaN the index of the first NaN.
func (v Value) ArgMinRow() Value { return v.firstRow(v.MinRow()) }

// ArgMaxRow returns the index, an int, of the largest element along the last axis, which is kept
// with one element: for ties the first index, and for a row with NaN the index of the first NaN.
func (v Value) ArgMaxRow() Value { return v.firstRow(v.MaxRow()) }

// StochasticBFloat16 returns v, stochastically rounded to one of the two adjacent bfloat16 numbers,
// so that the mean is v. bits are random bits, a uint of v's shape (Builder.RandomBits). Numbers
// that bfloat16 represents, NaN and infinities are unchanged.
func (v Value) StochasticBFloat16(bits Value) Value {
	b := v.Builder()
	sum := v.Bitcast(Uint).Add(bits.Shr(b.ConstUint(16)))
	rounded := sum.And(b.ConstUint(0xffff0000)).Bitcast(Float)
	return v.IsFinite().Select(rounded, v)
}

// firstRow returns the index of the first element of each row that equals extreme, or is NaN.
func (v Value) firstRow(extreme Value) Value {
	t := v.Type()
	t.DType = Int
	found := v.Eq(extreme)
	if t.Rank() > 0 && v.Type().DType == Float {
		found = found.Or(v.Ne(v))
	}
	indices := v.Builder().Iota(t, t.Rank()-1)
	return found.Select(indices, v.Builder().ConstInt(int32(v.lastDim()))).MinRow()
}

// QuantileRow returns the p-quantile, 0 ≤ p ≤ 1, of the elements along the last axis, which is kept
// with size 1. It is interpolated linearly at index p·(d−1) of the d elements in ascending order,
// as in NumPy's quantile. It is NaN if any element is NaN. Reshape a tensor to one row for a
// quantile of all its elements.
func (v Value) QuantileRow(p float64) Value {
	b, shape := v.Builder(), v.Shape()
	if !(p >= 0 && p <= 1) {
		return b.fail(fmt.Errorf("quantile %v is not between 0 and 1", p))
	}
	index := p * float64(v.lastDim()-1)
	at := func(k float64) Value { return v.OrderStatistic(b.ConstInt(int32(k))) }
	q := at(math.Floor(index))
	if part := index - math.Floor(index); part > 0 {
		q = q.Scale(1 - part).Add(at(math.Ceil(index)).Scale(part))
	}
	if len(shape) > 0 {
		shape[len(shape)-1] = 1
	}
	return q.Reshape(shape...)
}

func (v Value) reduce(op Op, axes []int) Value {
	return v.Builder().Apply(op, Attr{Axes: axes}, Type{}, v)
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
		return v.reduce(op, []int{0}) // fails with the message of the operation
	}
	last := len(shape) - 1
	shape[last] = 1
	return v.reduce(op, []int{last}).Reshape(shape...)
}

// MatMul returns the matrix product of two matrices: float[m,k]·float[k,n].
func (v Value) MatMul(o Value) Value {
	return v.Dot(o, [2][]int{{1}, {0}}, [2][]int{})
}
