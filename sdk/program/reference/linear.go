package reference

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
)

func (m *machine) linear(n *program.Node, args []Tensor) Tensor {
	if n.Op == program.OpHadamard {
		return m.hadamard(args[0], n.Attr.Block)
	}
	return m.dot(n, args[0], args[1])
}

// dot multiplies the matrices [left, contracted] and [contracted, right] of each
// batch. Operands whose axes do not form matrices as they lie are rearranged first.
func (m *machine) dot(n *program.Node, x, y Tensor) Tensor {
	a := n.Attr
	left := rest(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := rest(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	lhs := m.matrices(x, a.LhsBatch, left, a.LhsContract)
	rhs := m.matrices(y, a.RhsBatch, a.RhsContract, right)
	out := Tensor{Type: n.Type, Floats: m.floats.take(int(n.Type.Size()))}
	clear(out.Floats)
	multiply := m.multiplication(n)
	if lhs.Rows == 1 && rhs.Cols == 1 && lhs.step == 1 && rhs.step == 1 {
		columnwise(out.Floats, lhs, rhs)
		return out
	}
	for i := range lhs.count {
		c := linalg.RowMajor(part(out.Floats, i, lhs.count), lhs.Rows, rhs.Cols)
		multiply(c, lhs.at(i), rhs.at(i))
	}
	return out
}

// multiplication is how the matrices of a product are multiplied and added. A matrix times
// its own transpose takes half the time; its elements have the same bits.
func (m *machine) multiplication(n *program.Node) func(c, a, b linalg.Matrix) {
	symmetric := n.Args[0] == n.Args[1] && slices.Equal(n.Attr.LhsContract, n.Attr.RhsContract) && slices.Equal(n.Attr.LhsBatch, n.Attr.RhsBatch)
	switch {
	case symmetric && m.mode == fast:
		return linalg.AddSymmetricSingle
	case symmetric:
		return linalg.AddSymmetric[float64]
	case m.mode == fast:
		return func(c, a, b linalg.Matrix) { linalg.MulAddSingle(c, 1, a, b) }
	}
	return func(c, a, b linalg.Matrix) { linalg.MulAdd(c, 1, a, b) }
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
func (m *machine) matrices(x Tensor, batch, rows, cols []int) stack {
	step, ok1 := joined(x, batch)
	rowStride, ok2 := joined(x, rows)
	colStride, ok3 := joined(x, cols)
	if !ok1 || !ok2 || !ok3 {
		ordered := m.transpose(x, slices.Concat(batch, rows, cols))
		axes := make([]int, ordered.Type.Rank())
		for i := range axes {
			axes[i] = i
		}
		r := len(batch) + len(rows)
		return m.matrices(ordered, axes[:len(batch)], axes[len(batch):r], axes[r:])
	}
	return stack{
		Matrix: linalg.Matrix{Rows: product(x, rows), Cols: product(x, cols), RowStride: rowStride, ColStride: colStride, Data: x.Floats},
		count:  product(x, batch),
		step:   step,
	}
}

// joined is the distance in memory between neighbours along the given axes, taken as
// one axis; ok is false when there is no such distance.
func joined(x Tensor, axes []int) (stride int, ok bool) {
	all := rowMajor(x.Type.Shape)
	next := 0 // the distance that neighbours along the next axis to the left must have
	for i := len(axes) - 1; i >= 0; i-- {
		size := x.Type.Shape[axes[i]]
		switch {
		case size == 1:
			continue
		case next == 0:
			stride = all[axes[i]]
		case all[axes[i]] != next:
			return 0, false
		}
		next = all[axes[i]] * size
	}
	return stride, true
}

// rest lists the axes below rank that are in neither list.
func rest(rank int, a, b []int) []int {
	var axes []int
	for i := range rank {
		if !slices.Contains(a, i) && !slices.Contains(b, i) {
			axes = append(axes, i)
		}
	}
	return axes
}

// product is the number of elements along the given axes.
func product(x Tensor, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= x.Type.Shape[a]
	}
	return n
}

// copyOf is a copy of a float tensor, to be changed.
func (m *machine) copyOf(x Tensor) Tensor {
	out := Tensor{Type: x.Type, Floats: m.floats.take(len(x.Floats))}
	copy(out.Floats, x.Floats)
	return out
}

// hadamard applies the normalized Walsh–Hadamard matrix in natural order to each
// block by the butterfly: log2(block) passes of sums and differences.
func (m *machine) hadamard(x Tensor, block int) Tensor {
	out := m.copyOf(x)
	norm := 1 / math.Sqrt(float64(block))
	for run := range slices.Chunk(out.Floats, block) {
		for half := 1; half < block; half *= 2 {
			for i := range run {
				if i&half == 0 {
					a, b := run[i], run[i+half]
					run[i], run[i+half] = a+b, a-b
				}
			}
		}
		for i := range run {
			run[i] *= norm
		}
	}
	return out
}
