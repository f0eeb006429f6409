package reference

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
)

var errNoConvergence = errors.New("the eigenvalue iteration did not converge")

// factorize applies a factorization to each matrix of the last two axes.
func (m *machine) factorize(n *program.Node, args []Tensor) (Tensor, error) {
	x := args[0]
	rank := x.Type.Rank()
	rows, cols := x.Type.Shape[rank-2], x.Type.Shape[rank-1]
	count := x.Len() / (rows * cols)
	if n.Op == program.OpSortColumns {
		out := Tensor{Type: n.Type, Floats: m.floats.take(len(x.Floats))}
		for i := range count {
			sortColumns(part(out.Floats, i, count), part(x.Floats, i, count), part(args[1].Floats, i, count))
		}
		return out, nil
	}
	if n.Op == program.OpQR {
		out := m.copyOf(x)
		for i := range count {
			m.qr(part(out.Floats, i, count), rows, cols)
		}
		return out, nil
	}
	e, err := m.eigh(n.Args[0], x, count)
	if err != nil {
		return Tensor{}, err
	}
	if n.Op == program.OpEighValues {
		return Tensor{Type: n.Type, Floats: e.values}, nil
	}
	return Tensor{Type: n.Type, Floats: e.vectors}, nil
}

// sortColumns writes the columns of a to out, those with the largest keys first.
func sortColumns(out, a, keys []float64) {
	n := len(keys)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[j], keys[i]) }) // NaN is less than any number
	for at := 0; at < len(a); at += n {
		row, to := a[at:at+n], out[at:at+n]
		for j, from := range order {
			to[j] = row[from]
		}
	}
}

// qr replaces a by its factor Q, with the signs that the Householder reflections
// of LAPACK give (those of R's diagonal are free). A matrix with a non-finite
// element gives NaN.
func (m *machine) qr(a []float64, rows, cols int) {
	switch {
	case spoilt(a):
	case m.mode == fast:
		linalg.QRSingle(linalg.RowMajor(a, rows, cols))
	default:
		linalg.QR(linalg.RowMajor(a, rows, cols))
	}
}

// eigen holds the decompositions of all matrices of a value; vectors is empty
// when nobody asks for them.
type eigen struct{ values, vectors []float64 }

// eigh decomposes the count matrices of x, the value id, once for all nodes that
// want its eigenvalues or eigenvectors.
func (m *machine) eigh(id program.ID, x Tensor, count int) (eigen, error) {
	if e, ok := m.eigen[id]; ok {
		return e, nil
	}
	vectors := false
	for i := range m.p.Nodes {
		if n := &m.p.Nodes[i]; n.Op == program.OpEighVectors && n.Args[0] == id {
			vectors = true
		}
	}
	size := x.Type.Shape[x.Type.Rank()-1]
	e := eigen{values: m.floats.take(count * size), vectors: m.copyOf(x).Floats}
	for i := range count {
		if !symmetric(vectors, size, part(e.vectors, i, count), part(e.values, i, count)) {
			return eigen{}, errNoConvergence
		}
	}
	m.eigen[id] = e
	m.floats.keep(e.values) // for the node that wants the other one
	m.floats.keep(e.vectors)
	return e, nil
}

// symmetric replaces the n×n matrix a, of which it reads the lower triangle, by
// its eigenvectors and writes the eigenvalues, ascending, to w. A matrix with a
// non-finite element there gives NaN.
func symmetric(vectors bool, n int, a, w []float64) bool {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
	if spoilt(a) {
		spoil(w)
		return true
	}
	if vectors {
		return linalg.Eigh(linalg.RowMajor(a, n, n), w)
	}
	return linalg.EighValues(linalg.RowMajor(a, n, n), w)
}

// spoilt fills a matrix that has a non-finite element with NaN and reports it:
// package linalg promises nothing for such a matrix.
func spoilt(data []float64) bool {
	for _, v := range data {
		if v-v != 0 { // it is NaN for an infinite v, too
			spoil(data)
			return true
		}
	}
	return false
}

func spoil(data []float64) {
	for i := range data {
		data[i] = math.NaN()
	}
}
