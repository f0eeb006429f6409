package matrix

import (
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
)

// product multiplies matrices, or each of a stack with its counterpart.
type product struct {
	to        program.ID
	a, b      operand
	count     int
	symmetric bool
}

// operand is a stack of matrices in memory.
type operand struct {
	value                program.ID
	rows, cols           int
	rowStride, colStride int
}

// matrix is the i-th of the stack.
func (o operand) matrix(data []float32, i int) linalg.MatrixOf[float32] {
	return linalg.MatrixOf[float32]{Rows: o.rows, Cols: o.cols, RowStride: o.rowStride, ColStride: o.colStride, Data: data[i*o.rows*o.cols:]}
}

func (x *product) run(to, a, b []float32) {
	size := x.a.rows * x.b.cols
	clear(to)
	for i := range x.count {
		c := linalg.RowMajor(to[i*size:(i+1)*size], x.a.rows, x.b.cols)
		if x.symmetric {
			linalg.AddSymmetric(c, x.a.matrix(a, i), x.b.matrix(b, i))
		} else {
			linalg.MulAdd(c, 1, x.a.matrix(a, i), x.b.matrix(b, i))
		}
	}
}

// swap transposes a matrix.
type swap struct {
	from, to   program.ID
	rows, cols int // of what is read
}

// swapTile is the side of the squares that are transposed one after the other, so that
// both sides stay in the cache: the elements of a cache line.
const swapTile = 16

func (x *swap) run(to, from []float32) {
	for i0 := 0; i0 < x.rows; i0 += swapTile {
		for j0 := 0; j0 < x.cols; j0 += swapTile {
			i1, j1 := min(i0+swapTile, x.rows), min(j0+swapTile, x.cols)
			for j := j0; j < j1; j++ {
				row := to[j*x.rows : (j+1)*x.rows]
				for i := i0; i < i1; i++ {
					row[i] = from[i*x.cols+j]
				}
			}
		}
	}
}

// made writes a product or a transposition.
func (w *writer) made(id program.ID) (step, error) {
	n := w.p.Node(id)
	for _, a := range n.Args {
		if w.p.TypeOf(a).DType != program.Float || w.roles[a] == fixed {
			return step{}, w.refuse(id, "an operand is no float, or constant")
		}
	}
	if n.Op == program.OpTranspose {
		t := w.p.TypeOf(n.Args[0])
		if t.Rank() != 2 {
			return step{}, w.refuse(id, "it has %d axes", t.Rank())
		}
		return step{swap: &swap{w.root(n.Args[0]), id, t.Shape[0], t.Shape[1]}}, nil
	}
	a := n.Attr
	x, count, ok1 := w.operand(n.Args[0], a.LhsBatch, a.LhsContract, true)
	y, _, ok2 := w.operand(n.Args[1], a.RhsBatch, a.RhsContract, false)
	if !ok1 || !ok2 {
		return step{}, w.refuse(id, "it is no product of two matrices")
	}
	if w.families[n.Args[0]] != general { // the transpose is the same and sooner packed
		x.rowStride, x.colStride = 1, x.rows
	}
	p := &product{id, x, y, count, w.families[id] > general}
	w.k.work += int64(count) * int64(x.rows) * int64(x.cols) * int64(y.cols)
	return step{product: p}, nil
}

// operand sees a value as a stack of matrices, with the contracted axis as columns or
// as rows.
func (w *writer) operand(id program.ID, batch, contracted []int, columns bool) (o operand, count int, ok bool) {
	shape := w.p.TypeOf(id).Shape
	count = 1
	if len(batch) == 1 && batch[0] == 0 {
		count = shape[0]
	}
	if len(batch) > 1 || len(batch) == 1 && batch[0] != 0 || len(contracted) != 1 || len(shape) != 2+len(batch) {
		return o, 0, false
	}
	shape = shape[len(batch):]
	o = operand{w.root(id), shape[0], shape[1], shape[1], 1}
	if (contracted[0]-len(batch) == 1) != columns {
		o = operand{o.value, o.cols, o.rows, 1, o.rowStride}
	}
	return o, count, true
}
