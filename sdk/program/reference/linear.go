package reference

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/sdk/program"
)

// dot brings both operands into the order batch axes, own axes, contracted axes. Each
// batch is then a product X·Yᵀ of matrices, whose elements are inner products of rows.
func dot(n *program.Node, args []Tensor) (Tensor, error) {
	a, x, y := n.Attr, args[0], args[1]
	left := program.OtherAxes(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := program.OtherAxes(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	batches, depth := product(x, a.LhsBatch), product(x, a.LhsContract)
	rows, cols := product(x, left), product(y, right)
	x = transpose(x, slices.Concat(a.LhsBatch, left, a.LhsContract))
	y = transpose(y, slices.Concat(a.RhsBatch, right, a.RhsContract))
	out := Tensor{Type: n.Type, Floats: make([]float64, n.Type.Size())}
	for i := range batches {
		mat.NewDense(rows, cols, part(out.Floats, i, batches)).Mul(
			mat.NewDense(rows, depth, part(x.Floats, i, batches)),
			mat.NewDense(cols, depth, part(y.Floats, i, batches)).T())
	}
	return out, nil
}

// product is the number of elements along the given axes.
func product(x Tensor, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= x.Type.Shape[a]
	}
	return n
}

// hadamard applies the normalized Walsh–Hadamard matrix in natural order to each
// block by the butterfly: log2(block) passes of sums and differences.
func hadamard(x Tensor, block int) Tensor {
	out := Tensor{Type: x.Type, Floats: slices.Clone(x.Floats)}
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
