package reference

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/sdk/program"
)

var errNoConvergence = errors.New("the eigenvalue iteration did not converge")

// ofMatrices returns the operation that applies f to each matrix (the last two axes) of the first
// operand. f replaces the matrix a by its result; keys is the matching row of any second operand.
func ofMatrices(f func(a []float64, rows int, keys []float64)) operation {
	return func(n *program.Node, args []Tensor) Tensor {
		x := args[0].Clone()
		rows, count := matricesOf(x)
		for i := range count {
			var keys []float64
			if len(args) > 1 {
				keys = part(args[1].Floats, i, count)
			}
			f(part(x.Floats, i, count), rows, keys)
		}
		return x
	}
}

// matricesOf returns the row count of the matrices in the last two axes, and their number.
func matricesOf(x Tensor) (rows, count int) {
	shape := x.Type.Shape[x.Type.Rank()-2:]
	return shape[0], x.Len() / (shape[0] * shape[1])
}

func sortColumns(a []float64, _ int, keys []float64) {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	// NaN is less than any number.
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[j], keys[i]) })
	sorted := make([]float64, len(keys))
	for row := range slices.Chunk(a, len(keys)) {
		for to, from := range order {
			sorted[to] = row[from]
		}
		copy(row, sorted)
	}
}

// qr replaces a by the factor Q, with the signs of LAPACK's Householder reflections (the signs of
// R's diagonal are free). A matrix with a non-finite element gives NaN.
func qr(a []float64, rows int, _ []float64) {
	if !allFinite(a) {
		copy(a, nans(len(a)))
		return
	}
	cols := len(a) / rows
	q := blas64.General{Rows: rows, Cols: cols, Stride: cols, Data: a}
	reflections, work := make([]float64, cols), make([]float64, 64*cols)
	lapack64.Geqrf(q, reflections, work, len(work))
	lapack64.Orgqr(q, reflections, work, len(work))
}

// eigh returns the eigenvalues, ascending, or the eigenvectors, as columns, of each matrix of the
// last two axes. It reads the lower triangle only; a non-finite element there gives NaN.
func eigh(n *program.Node, x Tensor) (Tensor, error) {
	out := Tensor{Type: n.Type}
	rows, count := matricesOf(x)
	for i := range count {
		a, vectors := part(x.Floats, i, count), n.Op == program.OpEighVectors
		symmetric := mat.NewSymDense(rows, nil)
		for i := range rows {
			for j := range i + 1 {
				symmetric.SetSym(i, j, a[i*rows+j])
			}
		}
		var e mat.EigenSym
		switch {
		case !allFinite(symmetric.RawSymmetric().Data):
			out.Floats = append(out.Floats, nans(int(n.Type.Size())/count)...)
		case !e.Factorize(symmetric, vectors):
			return Tensor{}, errNoConvergence
		case vectors:
			var v mat.Dense
			e.VectorsTo(&v)
			out.Floats = append(out.Floats, v.RawMatrix().Data...)
		default:
			out.Floats = append(out.Floats, e.Values(nil)...)
		}
	}
	return out, nil
}

func allFinite(data []float64) bool {
	return !slices.ContainsFunc(data, func(v float64) bool { return math.IsNaN(v - v) })
}

func nans(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

// dot transposes both operands to the order batch axes, free axes, contracted axes. Each
// batch is then a product X·Yᵀ of matrices, whose elements are inner products of rows.
func dot(n *program.Node, args []Tensor) Tensor {
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
	return out
}

func product(x Tensor, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= x.Type.Shape[a]
	}
	return n
}

// hadamard applies the normalized Walsh–Hadamard matrix in natural order to each block with the
// butterfly algorithm: log2(block) passes of sums and differences.
func hadamard(n *program.Node, args []Tensor) Tensor {
	out, block := args[0].Clone(), n.Attr.Block
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
