package refresh

import (
	"cmp"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// transpose gives the axes of x, a float tensor, another order.
func (m *memory) transpose(x reference.Tensor, axes []int) reference.Tensor {
	if slices.IsSorted(axes) {
		return x
	}
	t := program.Type{DType: program.Float}
	var steps []int
	for _, a := range axes {
		t.Shape = append(t.Shape, x.Type.Shape[a])
		steps = append(steps, strides(x.Type.Shape)[a])
	}
	out := m.tensor(t)
	last := len(axes) - 1
	for i := range len(out.Floats) / t.Shape[last] {
		row, at := out.Floats[i*t.Shape[last]:][:t.Shape[last]], start(t.Shape[:last], steps, i)
		for k := range row {
			row[k] = x.Floats[at]
			at += steps[last]
		}
	}
	return out
}

// start is where row i begins of a tensor of rows, which has the given shape and steps
// without the last axis.
func start(shape, steps []int, i int) int {
	at := 0
	for axis, d := range slices.Backward(shape) {
		at += i % d * steps[axis]
		i /= d
	}
	return at
}

// strides gives the distance in memory between neighbours along each axis.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	step := 1
	for i, d := range slices.Backward(shape) {
		out[i] = step
		step *= d
	}
	return out
}

// sortColumns gives the columns of each matrix in the descending order of their keys.
func (m *memory) sortColumns(x, keys reference.Tensor) reference.Tensor {
	out := m.tensor(x.Type)
	_, cols, count := matricesOf(x.Type)
	for i := range count {
		keys, order := part(keys.Floats, i, count), make([]int, cols)
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(j, k int) int { return cmp.Compare(keys[k], keys[j]) }) // NaN is less than any number
		from, to := part(x.Floats, i, count), part(out.Floats, i, count)
		for at := 0; at < len(from); at += cols {
			row, sorted := from[at:][:cols], to[at:][:cols]
			for k, j := range order {
				sorted[k] = row[j]
			}
		}
	}
	return out
}
