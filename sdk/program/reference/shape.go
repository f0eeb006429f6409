package reference

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

func rearrange(n *program.Node, args []Tensor) Tensor {
	x := args[0]
	switch n.Op {
	case program.OpReshape:
		return Tensor{Type: n.Type, Floats: x.Floats, Ints: x.Ints}
	case program.OpTranspose:
		return transpose(x, n.Attr.Axes)
	case program.OpBroadcast:
		return broadcast(x, n.Type.Shape, n.Attr.Axes)
	case program.OpSlice:
		strides := rowMajor(x.Type.Shape)
		offset := 0
		for i, s := range strides {
			offset += s * n.Attr.Start[i]
			strides[i] *= n.Attr.Stride[i]
		}
		return x.gather(n.Type.Shape, strides, offset)
	default:
		return concatenate(n, args)
	}
}

func transpose(x Tensor, perm []int) Tensor {
	all := rowMajor(x.Type.Shape)
	shape, strides := make([]int, len(perm)), make([]int, len(perm))
	for i, a := range perm {
		shape[i], strides[i] = x.Type.Shape[a], all[a]
	}
	if slices.IsSorted(perm) {
		return x
	}
	return x.gather(shape, strides, 0)
}

// broadcast repeats x to shape; axes maps its axes to those of the result.
func broadcast(x Tensor, shape, axes []int) Tensor {
	all := rowMajor(x.Type.Shape)
	strides := make([]int, len(shape))
	for i, a := range axes {
		if x.Type.Shape[i] != 1 {
			strides[a] = all[i]
		}
	}
	return x.gather(shape, strides, 0)
}

// stretch repeats an operand of an elementwise operation to the result's shape.
func stretch(x Tensor, shape []int) Tensor {
	if slices.Equal(x.Type.Shape, shape) {
		return x
	}
	axes := make([]int, x.Type.Rank())
	for i := range axes {
		axes[i] = i
	}
	return broadcast(x, shape, axes)
}

// rowMajor gives the distance in memory between neighbours along each axis.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= shape[i]
	}
	return strides
}

// gather reads the elements offset + Σ index·stride of x in the order of shape.
func (t Tensor) gather(shape, strides []int, offset int) Tensor {
	out := Tensor{Type: program.Type{DType: t.Type.DType, Shape: shape}}
	if t.Type.DType == program.Float {
		out.Floats = gather(t.Floats, shape, strides, offset)
	} else {
		out.Ints = gather(t.Ints, shape, strides, offset)
	}
	return out
}

func gather[T any](data []T, shape, strides []int, offset int) []T {
	out := make([]T, 0, program.Type{Shape: shape}.Size())
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == len(shape) {
			out = append(out, data[at])
			return
		}
		if axis == len(shape)-1 {
			for range shape[axis] {
				out = append(out, data[at])
				at += strides[axis]
			}
			return
		}
		for range shape[axis] {
			walk(axis+1, at)
			at += strides[axis]
		}
	}
	walk(0, offset)
	return out
}

func concatenate(n *program.Node, args []Tensor) Tensor {
	axis := n.Attr.Axes[0]
	outer := 1
	for _, d := range n.Type.Shape[:axis] {
		outer *= d
	}
	out := Tensor{Type: n.Type}
	for row := range outer {
		for _, x := range args {
			out.Floats = append(out.Floats, part(x.Floats, row, outer)...)
			out.Ints = append(out.Ints, part(x.Ints, row, outer)...)
		}
	}
	return out
}

// part is one of count equal parts of data.
func part[T any](data []T, i, count int) []T {
	size := len(data) / count
	return data[i*size : (i+1)*size]
}

// reduce folds the named axes: they are moved last, then each run of elements
// that belongs to one result is folded.
func reduce(n *program.Node, x Tensor) Tensor {
	var perm []int
	for i := range x.Type.Rank() {
		if !slices.Contains(n.Attr.Axes, i) {
			perm = append(perm, i)
		}
	}
	x = transpose(x, append(perm, n.Attr.Axes...))
	out := Tensor{Type: n.Type}
	count := int(n.Type.Size())
	for i := range count {
		if n.Type.DType == program.Float {
			out.Floats = append(out.Floats, fold(n.Op, part(x.Floats, i, count)))
		} else {
			out.Ints = append(out.Ints, wrap(n.Type.DType, fold(n.Op, part(x.Ints, i, count))))
		}
	}
	return out
}

func fold[T float64 | int64](op program.Op, data []T) T {
	acc := data[0]
	for _, v := range data[1:] {
		switch op {
		case program.OpReduceSum:
			acc += v
		case program.OpReduceMax:
			acc = max(acc, v)
		default:
			acc = min(acc, v)
		}
	}
	return acc
}
