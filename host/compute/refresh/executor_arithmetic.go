package refresh

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// arithmetic is a sum, difference, product or quotient of floats, row by row.
func (m *memory) arithmetic(n *program.Node, x, y reference.Tensor) reference.Tensor {
	out := m.tensor(n.Type)
	if x.Type.Equal(y.Type) {
		combine(n.Op, out.Floats, x.Floats, y.Floats)
		return out
	}
	length := n.Type.Shape[n.Type.Rank()-1]
	xs, ys := rows(x, n.Type.Shape), rows(y, n.Type.Shape)
	for i := range len(out.Floats) / length {
		combine(n.Op, out.Floats[i*length:][:length], xs(i), ys(i))
	}
	return out
}

// rows gives the rows of an operand as the operation sees them: repeated along the axes
// where the operand has one element, or everywhere if it is a scalar.
func rows(x reference.Tensor, shape []int) func(i int) []float64 {
	last := len(shape) - 1
	steps := repeating(x.Type.Shape, len(shape))
	row := make([]float64, shape[last])
	return func(i int) []float64 {
		from := start(shape[:last], steps, i)
		if steps[last] == 1 {
			return x.Floats[from:][:len(row)]
		}
		for k := range row {
			row[k] = x.Floats[from]
		}
		return row
	}
}

// repeating gives the strides of a shape, 0 along the axes that are repeated.
func repeating(shape []int, rank int) []int {
	steps := make([]int, rank)
	for axis, step := range strides(shape) {
		if shape[axis] > 1 {
			steps[axis] = step
		}
	}
	return steps
}

// chooses reports whether a select takes whole rows, or all, from one operand.
func chooses(n *program.Node, args []reference.Tensor) bool {
	cond := args[0].Type
	return args[1].Type.Equal(n.Type) && args[2].Type.Equal(n.Type) && (cond.Rank() == 0 || cond.Shape[cond.Rank()-1] == 1)
}

// choose takes each row from x or y, as the condition for it says.
func (m *memory) choose(cond, x, y reference.Tensor) reference.Tensor {
	if cond.Len() == 1 {
		return []reference.Tensor{y, x}[cond.Ints[0]]
	}
	out := m.tensor(x.Type)
	last := x.Type.Rank() - 1
	length, steps := x.Type.Shape[last], repeating(cond.Type.Shape, last+1)
	for i := range len(out.Floats) / length {
		from := []reference.Tensor{y, x}[cond.Ints[start(x.Type.Shape[:last], steps, i)]]
		copy(out.Floats[i*length:][:length], from.Floats[i*length:])
	}
	return out
}

func combine(op program.Op, out, x, y []float64) {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
	case program.OpAdd:
		for i, v := range x {
			out[i] = v + y[i]
		}
	case program.OpSub:
		for i, v := range x {
			out[i] = v - y[i]
		}
	case program.OpMul:
		for i, v := range x {
			out[i] = v * y[i]
		}
	default:
		for i, v := range x {
			out[i] = v / y[i]
		}
	}
}
