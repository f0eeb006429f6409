package reference

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/cage-qat/cage/sdk/program"
)

var errNoConvergence = errors.New("the eigenvalue iteration did not converge")

// factorize applies a factorization to each matrix of the last two axes.
func (m *machine) factorize(n *program.Node, x Tensor) (Tensor, error) {
	rank := x.Type.Rank()
	rows, cols := x.Type.Shape[rank-2], x.Type.Shape[rank-1]
	count := x.Len() / (rows * cols)
	if n.Op == program.OpQR {
		out := x.Clone()
		for i := range count {
			qr(general(part(out.Floats, i, count), rows, cols))
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

// qr replaces a by its factor Q, with the signs that the Householder reflections
// of LAPACK give (those of R's diagonal are free). A matrix with a non-finite
// element gives NaN.
func qr(a blas64.General) {
	if spoilt(a.Data) {
		return
	}
	tau := make([]float64, a.Cols)
	workspace(func(work []float64, lwork int) { lapack64.Geqrf(a, tau, work, lwork) })
	workspace(func(work []float64, lwork int) { lapack64.Orgqr(a, tau, work, lwork) })
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
	job := lapack.EVNone
	for i := range m.p.Nodes {
		if n := &m.p.Nodes[i]; n.Op == program.OpEighVectors && n.Args[0] == id {
			job = lapack.EVCompute
		}
	}
	size := x.Type.Shape[x.Type.Rank()-1]
	e := eigen{values: make([]float64, count*size), vectors: x.Clone().Floats}
	for i := range count {
		if !symmetric(job, size, part(e.vectors, i, count), part(e.values, i, count)) {
			return eigen{}, errNoConvergence
		}
	}
	m.eigen[id] = e
	return e, nil
}

// symmetric replaces the n×n matrix a, of which it reads the lower triangle, by
// its eigenvectors and writes the eigenvalues, ascending, to w. A matrix with a
// non-finite element there gives NaN.
func symmetric(job lapack.EVJob, n int, a, w []float64) bool {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
	if spoilt(a) {
		spoil(w)
		return true
	}
	s := blas64.Symmetric{Uplo: blas.Lower, N: n, Stride: n, Data: a}
	ok := false
	workspace(func(work []float64, lwork int) { ok = lapack64.Syev(job, s, w, work, lwork) })
	return ok
}

// workspace calls a LAPACK routine twice: to ask for the best workspace, and to run.
func workspace(call func(work []float64, lwork int)) {
	var best [1]float64
	call(best[:], -1)
	work := make([]float64, int(best[0]))
	call(work, len(work))
}

// spoilt fills a matrix that has a non-finite element with NaN and reports it:
// LAPACK's routines promise nothing for such a matrix.
func spoilt(data []float64) bool {
	for _, v := range data {
		if math.IsNaN(v) || math.IsInf(v, 0) {
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
