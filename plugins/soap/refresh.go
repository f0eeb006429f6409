package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// deficient is the part of a column that must be left, when those before it are
// projected out, for the column to count as independent of them.
const deficient = 1e-14

// Observe leaves the factors to Update, which a refresh is to see only afterwards.
func (soap) Observe(*program.Builder, sdk.UpdateInput, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

// RefreshAt is the update after the first, and then after every freq updates that
// count, of which the second is the first.
func (soap) RefreshAt(t sdk.Tensor) sdk.Due {
	if len(rotated(t)) == 0 {
		return sdk.Due{}
	}
	freq := t.Int("freq")
	return sdk.Due{First: 2, Next: 2 + freq, Every: freq}
}

// Refresh renews the bases, and with them the moments, which live in them: m is
// turned, v only permuted as the columns of the basis are.
func (soap) Refresh(_ *program.Builder, in sdk.RefreshInput, first bool, t sdk.Tensor) (sdk.State, error) {
	renewed := sdk.State{}
	m, v := in.State[stateM], in.State[stateV]
	for _, axis := range rotated(t) {
		factor, old := in.State[name(stateFactor, axis)], in.State[name(stateBasis, axis)]
		if first {
			renewed[name(stateBasis, axis)] = eigenvectors(factor, old)
			continue
		}
		basis, order, turn := iterate(factor, old)
		renewed[name(stateBasis, axis)] = basis
		m = along(m, axis, turn, 0)
		v = along(v, axis, order, 0)
	}
	if !first {
		renewed[stateM], renewed[stateV] = m, v
	}
	return renewed, nil
}

// eigenvectors is the first basis: the eigenvectors of a factor, those of the largest
// eigenvalues first, or the old basis where they are not finite.
func eigenvectors(factor, old program.Value) program.Value {
	q := factor.Neg().EighVectors() // ascending in −L is descending in L
	return holds(q.IsFinite()).Select(q, old)
}

// iterate is one step of power iteration on a basis q of factor f: its columns are
// sorted by the estimates of the eigenvalues, diag(qᵀfq), and q ← orthonormalized f·q.
// order is the permutation as a matrix, from old to new columns, and turn the matrix
// from the old basis to the new one. Where the columns of f·q are not independent,
// everything stays as it is.
func iterate(f, q program.Value) (basis, order, turn program.Value) {
	n := f.Shape()[0]
	image := f.MatMul(q)
	order = descending(q.Mul(image).Sum(0))
	image = image.MatMul(order)
	basis = image.QR()
	ok := independent(basis, image)

	eye := identity(f.Builder(), n)
	turn = ok.Select(product(q, basis, 0, 0), eye)
	return ok.Select(basis, q), ok.Select(order, eye), turn
}

// descending is the permutation that sorts d in descending order, equal ones as they
// come: row i has its 1 in the column of the place of d[i], which is the number of
// elements that go before it.
func descending(d program.Value) program.Value {
	b, n := d.Builder(), d.Shape()[0]
	mine, other := d.Reshape(n, 1), d.Reshape(1, n)
	index := program.FloatType(n, n)
	row, col := b.Iota(index, 0), b.Iota(index, 1)
	before := other.Gt(mine).Or(other.Eq(mine).And(col.Lt(row)))
	place := before.Convert(program.Float).Sum(1).Reshape(n, 1)
	return place.Eq(col).Convert(program.Float)
}

// independent reports whether the columns of a = q·r are: the diagonal of r holds what
// is left of each when those before it are projected out. It is false when something
// is not finite.
func independent(q, a program.Value) program.Value {
	left := q.Mul(a).Sum(0).Abs()
	whole := a.Square().Sum(0).Sqrt()
	return holds(left.Gt(whole.Scale(deficient)))
}

// holds reports whether all elements of a bool are true.
func holds(v program.Value) program.Value {
	f := v.Convert(program.Float)
	for axis := v.Type().Rank() - 1; axis >= 0; axis-- {
		f = f.ReduceMin(axis)
	}
	return f.Gt(v.Builder().Const(0))
}
