package reference

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

func slice(n *program.Node, args []Tensor) Tensor {
	strides := rowMajor(args[0].Type.Shape)
	offset := 0
	for i, s := range strides {
		offset += s * n.Attr.Start[i]
		strides[i] *= n.Attr.Stride[i]
	}
	return gather(args[0], n.Type.Shape, strides, offset)
}

func transpose(x Tensor, perm []int) Tensor {
	all := rowMajor(x.Type.Shape)
	shape, strides := make([]int, len(perm)), make([]int, len(perm))
	for i, a := range perm {
		shape[i], strides[i] = x.Type.Shape[a], all[a]
	}
	return gather(x, shape, strides, 0)
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
	return gather(x, shape, strides, 0)
}

func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i, d := range slices.Backward(shape) {
		strides[i] = step
		step *= d
	}
	return strides
}

// gather reads the elements offset + Σ index·stride of x in the order of shape.
func gather(x Tensor, shape, strides []int, offset int) Tensor {
	t := program.Type{DType: x.Type.DType, Shape: shape}
	if slices.Equal(shape, x.Type.Shape) && slices.Equal(strides, rowMajor(shape)) {
		return Tensor{Type: t, Floats: x.Floats, Ints: x.Ints}
	}
	floats, ints := strided(x.Floats, shape, strides, offset), strided(x.Ints, shape, strides, offset)
	return Tensor{Type: t, Floats: floats, Ints: ints}
}

func strided[T any](data []T, shape, strides []int, offset int) []T {
	if data == nil {
		return nil
	}
	out := make([]T, 0, program.FloatType(shape...).Size())
	var read func(axis, at int)
	read = func(axis, at int) {
		if axis == len(shape) {
			out = append(out, data[at])
			return
		}
		for range shape[axis] {
			read(axis+1, at)
			at += strides[axis]
		}
	}
	read(0, offset)
	return out
}

func concatenate(n *program.Node, args []Tensor) Tensor {
	outer := int(program.FloatType(n.Type.Shape[:n.Attr.Axes[0]]...).Size())
	out := Tensor{Type: n.Type}
	for row := range outer {
		for _, x := range args {
			out.Floats = append(out.Floats, part(x.Floats, row, outer)...)
			out.Ints = append(out.Ints, part(x.Ints, row, outer)...)
		}
	}
	return out
}

func part[T any](data []T, i, count int) []T {
	size := len(data) / count
	return data[i*size : (i+1)*size]
}

func reduction(by program.Op) operation {
	floats, ints := by.Scalar()
	return func(n *program.Node, args []Tensor) Tensor {
		x := args[0]
		x = transpose(x, append(program.OtherAxes(x.Type.Rank(), n.Attr.Axes), n.Attr.Axes...))
		out := zeros(n.Type)
		for i, count := 0, out.Len(); i < count; i++ {
			if n.Type.DType == program.Float {
				out.Floats[i] = fold(part(x.Floats, i, count), floats)
			} else {
				out.Ints[i] = wrap(n.Type.DType, fold(part(x.Ints, i, count), ints))
			}
		}
		return out
	}
}

func fold[T any](data []T, f func(x, y T) T) T {
	acc := data[0]
	for _, v := range data[1:] {
		acc = f(acc, v)
	}
	return acc
}
