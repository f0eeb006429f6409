package refresh

import (
	"errors"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

var errNoConvergence = errors.New("the eigenvalue iteration did not converge")

// qr gives the factor Q of each matrix, with the signs that the Householder reflections
// of LAPACK give.
func (m *memory) qr(x reference.Tensor) reference.Tensor {
	out := m.tensor(x.Type)
	copy(out.Floats, x.Floats)
	rows, cols, count := matricesOf(x.Type)
	for i := range count {
		if a := part(out.Floats, i, count); !spoilt(a) {
			linalg.QRSingle(linalg.RowMajor(a, rows, cols))
		}
	}
	return out
}

// matricesOf gives the form of the matrices of the last two axes, and their number.
func matricesOf(t program.Type) (rows, cols, count int) {
	shape := t.Shape[t.Rank()-2:]
	return shape[0], shape[1], int(t.Size()) / (shape[0] * shape[1])
}

// eigh decomposes the matrices of a value once for all nodes that want its eigenvalues
// or eigenvectors, and gives them their results.
func (e *execution) eigh(operand program.ID) error {
	x := e.values[operand]
	size, _, count := matricesOf(x.Type)
	vectors := e.tensor(x.Type)
	values := e.tensor(program.FloatType(x.Type.Shape[:x.Type.Rank()-1]...))
	copy(vectors.Floats, x.Floats)
	wanted := false
	for i, n := range e.p.Nodes {
		switch id := len(e.p.Inputs) + i; {
		case n.Op == program.OpEighValues && n.Args[0] == operand:
			e.values[id] = values
		case n.Op == program.OpEighVectors && n.Args[0] == operand:
			e.values[id], wanted = vectors, true
		}
	}
	for i := range count {
		if !decompose(wanted, size, part(vectors.Floats, i, count), part(values.Floats, i, count)) {
			return errNoConvergence
		}
	}
	e.drop(values, e.values) // unless a node has it
	e.drop(vectors, e.values)
	return nil
}

// decompose replaces the n×n matrix a, of which it reads the lower triangle, by its
// eigenvectors and writes the eigenvalues, ascending, to w.
func decompose(vectors bool, n int, a, w []float64) bool {
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

// spoilt reports whether a matrix has a non-finite element, and then fills it with NaN, as the operations are defined.
func spoilt(data []float64) bool {
	if !slices.ContainsFunc(data, func(v float64) bool { return v-v != 0 }) { // it is NaN for an infinite v, too
		return false
	}
	spoil(data)
	return true
}

func spoil(data []float64) {
	for i := range data {
		data[i] = math.NaN()
	}
}
