package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// flipped reports whether the moments of a tensor are stored transposed, as for a matrix with more
// rows than columns. Then the larger basis is the right operand, which a device need not transpose.
func flipped(t sdk.Tensor) bool { return len(t.Shape) == 2 && t.Shape[0] > t.Shape[1] }

// rotate transforms a gradient into the bases. The result has the shape of the moments.
func rotate(g program.Value, state sdk.State, t sdk.Tensor) program.Value {
	if flipped(t) {
		return flip(g, state, t, 1, 0)
	}
	// Here the last axis of a matrix is the longer one, so that the smaller basis is transposed.
	for _, axis := range slices.Backward(rotated(t)) {
		g = along(g, axis, state[name(stateBasis, axis)], 0)
	}
	return g
}

// rotateBack transforms a direction back from the bases.
func rotateBack(u program.Value, state sdk.State, t sdk.Tensor) program.Value {
	if flipped(t) {
		return flip(u, state, t, 0, 1)
	}
	for _, axis := range rotated(t) {
		u = along(u, axis, state[name(stateBasis, axis)], 1)
	}
	return u
}

// flip multiplies a matrix by the bases and transposes it: the basis of the axis first is on the
// left, the other one on the right. It contracts the axis summed of both bases.
func flip(v program.Value, state sdk.State, t sdk.Tensor, first, summed int) program.Value {
	axes := rotated(t)
	if slices.Contains(axes, first) {
		v = product(state[name(stateBasis, first)], v, summed, 1)
	} else {
		v = v.Transpose(1, 0)
	}
	if slices.Contains(axes, 1-first) {
		v = product(v, state[name(stateBasis, 1-first)], 1, summed)
	}
	return v
}

// along multiplies a matrix v along an axis by the square matrix q, contracting the axis summed of
// q: 0 rotates into the basis of its columns, 1 rotates back.
func along(v program.Value, axis int, q program.Value, summed int) program.Value {
	if axis == 0 {
		return product(q, v, summed, 0)
	}
	return product(v, q, 1, summed)
}

// product contracts axis i of x with axis j of y.
func product(x, y program.Value, i, j int) program.Value {
	return x.Dot(y, [2][]int{{i}, {j}}, [2][]int{})
}
