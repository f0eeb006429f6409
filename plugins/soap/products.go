package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// gram is the factor that one gradient gives along an axis: its product with itself
// over all others.
func gram(g program.Value, axis int) program.Value {
	var others []int
	for i := range g.Shape() {
		if i != axis {
			others = append(others, i)
		}
	}
	return g.Dot(g, [2][]int{others, others}, [2][]int{})
}

// flipped reports whether the moments of a tensor are kept transposed: those of a
// matrix with more rows than columns. Rotating it from the right is then the product
// with the larger basis, and no such basis has ever to be transposed for a product,
// which a device would do in each update.
func flipped(t sdk.Tensor) bool { return len(t.Shape) == 2 && t.Shape[0] > t.Shape[1] }

// momentShape is the shape of the moments.
func momentShape(t sdk.Tensor) []int {
	shape := slices.Clone(t.Shape)
	if flipped(t) {
		slices.Reverse(shape)
	}
	return shape
}

// momentAxis is where the moments have an axis of the tensor.
func momentAxis(t sdk.Tensor, axis int) int {
	if flipped(t) {
		return 1 - axis
	}
	return axis
}

// rotate takes a gradient into the bases, as the moments are kept.
func rotate(g program.Value, state sdk.State, t sdk.Tensor) program.Value {
	axes := rotated(t)
	if flipped(t) {
		if slices.Contains(axes, 1) {
			g = product(state[name(stateBasis, 1)], g, 0, 1)
		} else {
			g = g.Transpose(1, 0)
		}
		if slices.Contains(axes, 0) {
			g = product(g, state[name(stateBasis, 0)], 1, 0)
		}
		return g
	}
	// The last axis is the longer one of a matrix: the smaller basis is transposed.
	for _, axis := range slices.Backward(axes) {
		g = along(g, axis, state[name(stateBasis, axis)], 0)
	}
	return g
}

// rotateBack takes a direction out of the bases.
func rotateBack(u program.Value, state sdk.State, t sdk.Tensor) program.Value {
	axes := rotated(t)
	if flipped(t) {
		if slices.Contains(axes, 0) {
			u = product(state[name(stateBasis, 0)], u, 1, 1)
		} else {
			u = u.Transpose(1, 0)
		}
		if slices.Contains(axes, 1) {
			u = product(u, state[name(stateBasis, 1)], 1, 1)
		}
		return u
	}
	for _, axis := range axes {
		u = along(u, axis, state[name(stateBasis, axis)], 1)
	}
	return u
}

// along multiplies v along an axis by a square matrix, of which the given axis is
// summed over: 0 rotates into a basis of columns q, 1 back. A first and a last axis
// need no transposition.
func along(v program.Value, axis int, q program.Value, summed int) program.Value {
	last := len(v.Shape()) - 1
	switch {
	case axis == 0:
		return product(q, v, summed, 0)
	case axis == last:
		return product(v, q, last, summed)
	}
	v = product(v, q, axis, summed) // the axis is the last one now
	var back []int
	for i := range last + 1 {
		switch {
		case i < axis:
			back = append(back, i)
		case i == axis:
			back = append(back, last)
		default:
			back = append(back, i-1)
		}
	}
	return v.Transpose(back...)
}

// product sums over axis i of x and axis j of y.
func product(x, y program.Value, i, j int) program.Value {
	return x.Dot(y, [2][]int{{i}, {j}}, [2][]int{})
}

// identity is the unit matrix of order n.
func identity(b *program.Builder, n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
}
