package linalg

import lapackgonum "gonum.org/v1/gonum/lapack/gonum"

// Eigh decomposes the symmetric matrix a, of which it reads the lower triangle; ColStride
// must be 1. It writes the eigenvalues, in ascending order, to values and replaces the
// columns of a by the eigenvectors. It reports whether the iterations converged.
func Eigh(a Matrix, values []float64) bool {
	n := a.Rows
	scale := normalize(a, true)
	t := reduce(a)
	vt := temporary[float64](n, n)
	defer vt.release()
	if !divide(t.d, t.e, vt) {
		return false
	}
	for i := range n {
		row := a.row(i)
		for j := range row {
			row[j] = vt.Data[j*n+i]
		}
		values[i] = t.d[i] * scale
	}
	t.back(a)
	return true
}

// EighValues is [Eigh] for the eigenvalues only. It overwrites a.
func EighValues(a Matrix, values []float64) bool {
	scale := normalize(a, true)
	t := reduce(a)
	if !(lapackgonum.Implementation{}).Dsterf(len(t.d), t.d, t.e) {
		return false
	}
	for i, v := range t.d {
		values[i] = v * scale
	}
	return true
}
