package main

import "github.com/cage-qat/cage/sdk/program"

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
