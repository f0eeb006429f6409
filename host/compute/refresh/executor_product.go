package refresh

import (
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// dot multiplies the matrices [left, contracted] and [contracted, right] of each
// batch. Operands whose axes do not form matrices as they lie are rearranged first.
func (m *memory) dot(n *program.Node, x, y reference.Tensor) reference.Tensor {
	a := n.Attr
	left := program.OtherAxes(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := program.OtherAxes(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	lhs := m.matrices(x, a.LhsBatch, left, a.LhsContract)
	rhs := m.matrices(y, a.RhsBatch, a.RhsContract, right)
	out := m.tensor(n.Type)
	clear(out.Floats)
	if lhs.Rows == 1 && rhs.Cols == 1 && lhs.step == 1 && rhs.step == 1 {
		columnwise(out.Floats, lhs, rhs)
		return out
	}
	// A matrix times its own transpose takes half the time.
	symmetric := n.Args[0] == n.Args[1] && slices.Equal(a.LhsContract, a.RhsContract) && slices.Equal(a.LhsBatch, a.RhsBatch)
	for i := range lhs.count {
		c := linalg.RowMajor(part(out.Floats, i, lhs.count), lhs.Rows, rhs.Cols)
		if symmetric {
			linalg.AddSymmetricSingle(c, lhs.at(i), rhs.at(i))
		} else {
			linalg.MulAddSingle(c, lhs.at(i), rhs.at(i))
		}
	}
	return out
}

// columnwise adds the inner products of vectors that lie side by side, as the columns of
// a matrix do.
func columnwise(out []float64, x, y stack) {
	for k := range x.Cols {
		a, b := x.Data[k*x.ColStride:][:len(out)], y.Data[k*y.RowStride:][:len(out)]
		for i, v := range a {
			out[i] += v * b[i]
		}
	}
}

// stack is a number of matrices of one form, from one to the next of which it is
// step elements.
type stack struct {
	linalg.Matrix
	count, step int
}

func (s stack) at(i int) linalg.Matrix {
	m := s.Matrix
	m.Data = m.Data[i*s.step:]
	return m
}

// matrices sees x as a stack of matrices with the given axes.
func (m *memory) matrices(x reference.Tensor, batch, rows, cols []int) stack {
	step, ok1 := joined(x.Type.Shape, batch)
	rowStride, ok2 := joined(x.Type.Shape, rows)
	colStride, ok3 := joined(x.Type.Shape, cols)
	count, height, width := product(x.Type.Shape, batch), product(x.Type.Shape, rows), product(x.Type.Shape, cols)
	if !ok1 || !ok2 || !ok3 {
		x = m.transpose(x, slices.Concat(batch, rows, cols))
		step, rowStride, colStride = height*width, width, 1
	}
	first := linalg.Matrix{Rows: height, Cols: width, RowStride: rowStride, ColStride: colStride, Data: x.Floats}
	return stack{first, count, step}
}

// joined is the distance in memory between neighbours along the given axes, taken as
// one axis; ok is false when there is no such distance.
func joined(shape, axes []int) (stride int, ok bool) {
	all := strides(shape)
	next := 0 // the distance that neighbours along the next axis to the left must have
	for _, axis := range slices.Backward(axes) {
		switch {
		case shape[axis] == 1:
			continue
		case next == 0:
			stride = all[axis]
		case all[axis] != next:
			return 0, false
		}
		next = all[axis] * shape[axis]
	}
	return stride, true
}

// product is the number of elements along the given axes.
func product(shape, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= shape[a]
	}
	return n
}

// part is one of count equal parts of data.
func part(data []float64, i, count int) []float64 {
	size := len(data) / count
	return data[i*size : (i+1)*size]
}
