package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// flipped reports whether the moments of a tensor are stored transposed, as for a matrix with more
// rows than columns. Then the larger basis is the right operand, which a device need not transpose.
func flipped(t sdk.Tensor) bool { return len(t.Shape) == 2 && t.Shape[0] > t.Shape[1] }

// rotate expresses a gradient in the bases. The result has the shape of the moments.
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

// flip multiplies a matrix by the bases and transposes the result. The basis of axis left is the
// left factor, that of the other axis the right one. contracted is the axis of both bases to
// contract.
func flip(v program.Value, state sdk.State, t sdk.Tensor, left, contracted int) program.Value {
	axes := rotated(t)
	if slices.Contains(axes, left) {
		v = product(state[name(stateBasis, left)], v, contracted, 1)
	} else {
		v = v.Transpose(1, 0)
	}
	if slices.Contains(axes, 1-left) {
		v = product(v, state[name(stateBasis, 1-left)], 1, contracted)
	}
	return v
}

// along multiplies a matrix v along an axis by the square matrix q. contracted is the axis of q to
// contract: 0 rotates into the basis of its columns, 1 rotates back.
func along(v program.Value, axis int, q program.Value, contracted int) program.Value {
	if axis == 0 {
		return product(q, v, contracted, 0)
	}
	return product(v, q, 1, contracted)
}

// product contracts axis i of x with axis j of y.
func product(x, y program.Value, i, j int) program.Value {
	return x.Dot(y, [2][]int{{i}, {j}}, [2][]int{})
}
