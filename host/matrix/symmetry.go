package matrix

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// family says what is known of a square matrix, or of each of a stack of them: all
// matrices of a family are polynomials of one symmetric matrix, so that they are
// symmetric, as are their sums and their products.
type family int

const (
	// general is a matrix of which nothing is known.
	general family = 0
	// scalarMatrix is a multiple of the identity, which is in every family.
	scalarMatrix family = -1
)

// families finds the families of all values.
func families(w *plan) []family {
	list := make([]family, w.p.NumValues())
	next := family(0)
	for i := range w.p.Nodes {
		id, n := program.ID(len(w.p.Inputs)+i), &w.p.Nodes[i]
		switch {
		case w.roles[id] == fixed:
			if w.identity(id) {
				list[id] = scalarMatrix
			}
		case n.Op == program.OpDot:
			f := joint(list[n.Args[0]], list[n.Args[1]])
			if f == general && w.gram(n) {
				next++
				f = next
			}
			list[id] = f
		case w.roles[id] == local:
			list[id] = w.combined(n, list)
		}
	}
	return list
}

// joint is the family of a sum or product.
func joint(a, b family) family {
	switch {
	case a == b, b == scalarMatrix:
		return a
	case a == scalarMatrix:
		return b
	}
	return general
}

// combined is the family of an elementwise result.
func (w *plan) combined(n *program.Node, list []family) family {
	switch n.Op {
	case program.OpNeg:
		return list[n.Args[0]]
	case program.OpAdd, program.OpSub:
		if w.matrices(n.Args[0]) && w.matrices(n.Args[1]) {
			return joint(list[n.Args[0]], list[n.Args[1]])
		}
	case program.OpMul:
		if w.number(n.Args[0]) {
			return list[n.Args[1]]
		}
		if w.number(n.Args[1]) {
			return list[n.Args[0]]
		}
	case program.OpDiv:
		if w.number(n.Args[1]) {
			return list[n.Args[0]]
		}
	}
	return general
}

// matrices reports whether a value is a square matrix or a stack of them.
func (w *plan) matrices(id program.ID) bool {
	shape := w.p.TypeOf(id).Shape
	return len(shape) >= 2 && shape[len(shape)-1] == shape[len(shape)-2] && shape[len(shape)-1] > 1
}

// number reports whether a value is one number, or one for each of a stack.
func (w *plan) number(id program.ID) bool {
	shape := w.p.TypeOf(id).Shape
	return w.scalar(id) || len(shape) == 3 && shape[1] == 1 && shape[2] == 1
}

// gram reports whether a product is that of a matrix with its own transpose.
func (w *plan) gram(n *program.Node) bool {
	a, b := n.Args[0], n.Args[1]
	return w.root(a) == w.root(b) && w.p.TypeOf(a).Equal(w.p.TypeOf(b)) &&
		slices.Equal(n.Attr.LhsContract, n.Attr.RhsContract) && slices.Equal(n.Attr.LhsBatch, n.Attr.RhsBatch)
}

// identity reports whether a constant is a multiple of the identity.
func (w *plan) identity(id program.ID) bool {
	t := w.p.TypeOf(id)
	if t.DType != program.Float || !w.matrices(id) || t.Rank() == 3 && t.Shape[0] != 1 || t.Rank() > 3 {
		return false
	}
	data, err := w.evaluate(id)
	if err != nil {
		return false
	}
	n := t.Shape[t.Rank()-1]
	for i, v := range data {
		if i%(n+1) == 0 && v != data[0] || i%(n+1) != 0 && v != 0 {
			return false
		}
	}
	return true
}
