package reference

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"github.com/cage-qat/cage/sdk/program"
)

func linear(n *program.Node, args []Tensor) Tensor {
	if n.Op == program.OpHadamard {
		return hadamard(args[0], n.Attr.Block)
	}
	return dot(n, args[0], args[1])
}

// dot brings the operands into the forms [batch, left, contracted] and
// [batch, right, contracted] and multiplies one matrix pair after the other. In
// this form gonum's product is an inner product of rows, which, unlike its other
// forms, does not skip zeros: 0·NaN stays NaN.
func dot(n *program.Node, x, y Tensor) Tensor {
	a := n.Attr
	left := rest(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := rest(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	batch, contracted := product(x, a.LhsBatch), product(x, a.LhsContract)
	rows, cols := product(x, left), product(y, right)
	x = transpose(x, slices.Concat(a.LhsBatch, left, a.LhsContract))
	y = transpose(y, slices.Concat(a.RhsBatch, right, a.RhsContract))
	out := Tensor{Type: n.Type, Floats: make([]float64, n.Type.Size())}
	for i := range batch {
		blas64.Gemm(blas.NoTrans, blas.Trans, 1,
			general(part(x.Floats, i, batch), rows, contracted),
			general(part(y.Floats, i, batch), cols, contracted),
			0, general(part(out.Floats, i, batch), rows, cols))
	}
	return out
}

func general(data []float64, rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Stride: cols, Data: data}
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

// hadamard applies the normalized Walsh–Hadamard matrix in natural order to each
// block by the butterfly: log2(block) passes of sums and differences.
func hadamard(x Tensor, block int) Tensor {
	out := x.Clone()
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
