package testkernel

import (
	"fmt"
	"math"
	"slices"
)

// at calls visit for each element of a tensor of shape dims, with its offset and its index.
func at(dims []int, visit func(i int, index []int)) {
	index := make([]int, len(dims))
	for i := range (kind{dims: dims}).size() {
		visit(i, index)
		for axis := len(dims) - 1; axis >= 0; axis-- {
			if index[axis]++; index[axis] < dims[axis] {
				break
			}
			index[axis] = 0
		}
	}
}

// offset returns the offset of the element at index. Axes of size 1 are broadcast.
func offset(dims, index []int) int {
	n := 0
	for axis, d := range dims {
		n *= d
		if d > 1 {
			n += index[axis]
		}
	}
	return n
}

// gather returns the elements of x at the given offsets as a value of type k.
func gather(x *value, k kind, numbers []int) *value {
	out := &value{kind: k, tensor: x.tensor}
	for _, n := range numbers {
		if x.isFloat() {
			out.floats = append(out.floats, x.floats[n])
		} else {
			out.integers = append(out.integers, x.integers[n])
		}
	}
	return out
}

// broadcast repeats x along axes of size 1, and a scalar along all axes.
func broadcast(x *value, k kind) (*value, error) {
	if x.dims != nil && len(x.dims) != len(k.dims) {
		return nil, fmt.Errorf("cannot change shape %v to %v", x.dims, k.dims)
	}
	for i, d := range x.dims {
		if d != k.dims[i] && d != 1 {
			return nil, fmt.Errorf("cannot change shape %v to %v", x.dims, k.dims)
		}
	}
	var numbers []int
	at(k.dims, func(_ int, index []int) { numbers = append(numbers, offset(x.dims, index)) })
	return gather(x, k, numbers), nil
}

// transpose permutes the axes of x.
func transpose(op *operation, x *value, k kind) (*value, error) {
	order, err := op.order()
	if err != nil {
		return nil, err
	}
	if len(order) != len(x.dims) || len(order) != len(k.dims) {
		return nil, fmt.Errorf("cannot change shape %v to %v", x.dims, k.dims)
	}
	for i, axis := range order {
		if axis >= len(x.dims) || slices.Index(order, axis) != i || k.dims[i] != x.dims[axis] {
			return nil, fmt.Errorf("cannot transpose %v by %v to %v", x.dims, order, k.dims)
		}
	}
	var numbers []int
	from := make([]int, len(order))
	at(k.dims, func(_ int, index []int) {
		for i, axis := range order {
			from[axis] = index[i]
		}
		numbers = append(numbers, offset(x.dims, from))
	})
	return gather(x, k, numbers), nil
}

func reduce(op *operation, x *value) (*value, error) {
	axis, err := op.attribute("axis")
	if err != nil {
		return nil, err
	}
	if axis >= len(x.dims) {
		return nil, fmt.Errorf("%v has no axis %d", x.dims, axis)
	}
	out := &value{kind: kind{x.elem, slices.Delete(slices.Clone(x.dims), axis, axis+1)}}
	if len(out.dims) == 0 {
		out.dims = nil
	}
	one := kind{x.elem, nil}
	parts := make([]*value, out.size())
	at(x.dims, func(i int, index []int) {
		j := offset(out.dims, slices.Delete(slices.Clone(index), axis, axis+1))
		element := gather(x, one, []int{i})
		if parts[j] != nil && err == nil {
			element, err = arithmetic(&operation{name: op.fold}, []*value{parts[j], element}, one)
		}
		parts[j] = element
	})
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		out.floats, out.integers = append(out.floats, p.floats...), append(out.integers, p.integers...)
	}
	return out, nil
}

// dot multiplies two bfloat16 matrices and adds a float32 matrix.
func dot(args []*value, types []kind) (*value, error) {
	const least = 16 // minimum size of each axis on GPUs
	x, y, sum := args[0], args[1], args[2]
	for i, a := range args {
		if !a.equal(types[i]) || len(a.dims) != 2 || slices.Min(a.dims) < least ||
			a.elem != []string{"bf16", "bf16", "f32"}[i] {
			return nil, fmt.Errorf("operand %d is %v, but the text declares %v", i, a.kind, types[i])
		}
	}
	rows, inner, columns := x.dims[0], x.dims[1], y.dims[1]
	if y.dims[0] != inner || !slices.Equal(sum.dims, []int{rows, columns}) {
		return nil, fmt.Errorf("%v × %v + %v", x.dims, y.dims, sum.dims)
	}
	out := &value{kind: sum.kind, floats: slices.Clone(sum.floats)}
	for i := range rows {
		for k := range inner {
			for j := range columns {
				out.floats[i*columns+j] += x.floats[i*inner+k] * y.floats[k*columns+j]
			}
		}
	}
	return out, nil
}

// roundBFloat16 rounds x to bfloat16, ties to even.
func roundBFloat16(x float32) float32 {
	bits := math.Float32bits(x)
	if x != x {
		return math.Float32frombits(bits | 1<<16)
	}
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}
