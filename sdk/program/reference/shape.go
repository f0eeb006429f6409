package reference

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

func (m *machine) rearrange(n *program.Node, args []Tensor) Tensor {
	x := args[0]
	switch n.Op {
	case program.OpReshape:
		return Tensor{Type: n.Type, Floats: x.Floats, Ints: x.Ints}
	case program.OpTranspose:
		return m.transpose(x, n.Attr.Axes)
	case program.OpBroadcast:
		return m.broadcast(x, n.Type.Shape, n.Attr.Axes)
	case program.OpSlice:
		strides := rowMajor(x.Type.Shape)
		offset := 0
		for i, s := range strides {
			offset += s * n.Attr.Start[i]
			strides[i] *= n.Attr.Stride[i]
		}
		return m.gather(x, n.Type.Shape, strides, offset)
	default:
		return m.concatenate(n, args)
	}
}

func (m *machine) transpose(x Tensor, perm []int) Tensor {
	all := rowMajor(x.Type.Shape)
	shape, strides := make([]int, len(perm)), make([]int, len(perm))
	for i, a := range perm {
		shape[i], strides[i] = x.Type.Shape[a], all[a]
	}
	if slices.IsSorted(perm) {
		return x
	}
	return m.gather(x, shape, strides, 0)
}

// broadcast repeats x to shape; axes maps its axes to those of the result.
func (m *machine) broadcast(x Tensor, shape, axes []int) Tensor {
	all := rowMajor(x.Type.Shape)
	strides := make([]int, len(shape))
	for i, a := range axes {
		if x.Type.Shape[i] != 1 {
			strides[a] = all[i]
		}
	}
	return m.gather(x, shape, strides, 0)
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

// gather reads the elements offset + Σ index·stride of t in the order of shape.
func (m *machine) gather(t Tensor, shape, strides []int, offset int) Tensor {
	out := Tensor{Type: program.Type{DType: t.Type.DType, Shape: shape}}
	if t.Type.DType == program.Float {
		out.Floats = gather(&m.floats, t.Floats, shape, strides, offset)
	} else {
		out.Ints = gather(&m.ints, t.Ints, shape, strides, offset)
	}
	return out
}

func gather[T any](p *pool[T], data []T, shape, strides []int, offset int) []T {
	out := p.take(int(program.Type{Shape: shape}.Size()))
	rest := out
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis < len(shape)-1 {
			for range shape[axis] {
				walk(axis+1, at)
				at += strides[axis]
			}
			return
		}
		if axis < len(shape) {
			fetch(rest[:shape[axis]], data[at:], strides[axis])
			rest = rest[shape[axis]:]
			return
		}
		rest[0] = data[at]
	}
	if len(out) > 0 {
		walk(0, offset)
	}
	return out
}

// fetch reads elements that are stride apart.
func fetch[T any](out, from []T, stride int) {
	if stride == 1 {
		copy(out, from)
		return
	}
	at := 0
	for i := range out {
		out[i] = from[at]
		at += stride
	}
}

func (m *machine) concatenate(n *program.Node, args []Tensor) Tensor {
	axis := n.Attr.Axes[0]
	outer := 1
	for _, d := range n.Type.Shape[:axis] {
		outer *= d
	}
	out := Tensor{Type: n.Type}
	if n.Type.DType == program.Float {
		out.Floats = m.floats.take(int(n.Type.Size()))
	} else {
		out.Ints = m.ints.take(int(n.Type.Size()))
	}
	floats, ints := out.Floats, out.Ints
	for row := range outer {
		for _, x := range args {
			floats = floats[copy(floats, part(x.Floats, row, outer)):]
			ints = ints[copy(ints, part(x.Ints, row, outer)):]
		}
	}
	return out
}

// part is one of count equal parts of data.
func part[T any](data []T, i, count int) []T {
	size := len(data) / count
	return data[i*size : (i+1)*size]
}

// reduce folds the named axes. They are moved last unless they are neighbours
// already; the elements of one result are then the same distance apart.
func (m *machine) reduce(n *program.Node, x Tensor) Tensor {
	axes := n.Attr.Axes
	inner := 1
	if neighbours(axes) {
		for _, d := range x.Type.Shape[axes[len(axes)-1]+1:] {
			inner *= d
		}
	} else {
		x = m.transpose(x, append(rest(x.Type.Rank(), axes, nil), axes...))
	}
	out := Tensor{Type: n.Type}
	count := int(n.Type.Size())
	if n.Type.DType == program.Float {
		out.Floats = m.floats.take(count)
		fold(n.Op, out.Floats, x.Floats, inner)
		return out
	}
	out.Ints = m.ints.take(count)
	fold(n.Op, out.Ints, x.Ints, inner)
	for i, v := range out.Ints {
		out.Ints[i] = wrap(n.Type.DType, v)
	}
	return out
}

// neighbours reports whether each axis follows the one before it.
func neighbours(axes []int) bool {
	for i, a := range axes {
		if a != axes[0]+i {
			return false
		}
	}
	return len(axes) > 0
}

// fold combines, for each of inner results that lie side by side, elements that are
// inner apart, in their order.
func fold[T float64 | int64](op program.Op, out, data []T, inner int) {
	if len(out) == 0 {
		return
	}
	size := len(data) / len(out) * inner // the elements of inner results
	for len(out) > 0 {
		acc := out[:inner]
		copy(acc, data)
		for at := inner; at < size; at += inner {
			row := data[at : at+inner]
			switch op {
			case program.OpReduceSum:
				for i, v := range row {
					acc[i] += v
				}
			case program.OpReduceMax:
				for i, v := range row {
					acc[i] = max(acc[i], v)
				}
			default:
				for i, v := range row {
					acc[i] = min(acc[i], v)
				}
			}
		}
		out, data = out[inner:], data[size:]
	}
}
