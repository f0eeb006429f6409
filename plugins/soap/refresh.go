package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// shift, times the mean eigenvalue of a factor, is added to the factor's diagonal before a step of
// power iteration. That is within the product's rounding error, but nonzero where the factor is
// zero.
const shift = 0x1p-52

// Observe does nothing: a refresh must not see this update's gradient in the factors, so Update
// adds it afterwards.
func (soap) Observe(*program.Builder, sdk.UpdateInput, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

// RefreshAt requests the first bases before the second update, and new ones every freq updates
// after that: the first update only initializes the factors.
func (soap) RefreshAt(t sdk.Tensor) sdk.Due {
	if len(rotated(t)) == 0 {
		return sdk.Due{}
	}
	freq := t.Int("freq")
	return sdk.Due{First: 2, Next: 2 + freq, Every: freq}
}

// Refresh updates the bases, and the moments, which are stored in these bases: m is rotated into
// the new bases; v is only permuted, in the order in which the columns of the old bases are sorted.
func (soap) Refresh(_ *program.Builder, in sdk.RefreshInput, first bool,
	t sdk.Tensor) (sdk.State, error) {
	next := sdk.State{}
	m, v := in.State[stateM], in.State[stateV]
	for _, axis := range rotated(t) {
		factor, old := in.State[name(stateFactor, axis)], in.State[name(stateBasis, axis)]
		if first {
			next[name(stateBasis, axis)] = eigenvectors(factor, old)
			continue
		}
		basis, keys, ok := iterate(factor, old)
		next[name(stateBasis, axis)] = ok.Select(basis, old)
		at := axis // of the moments
		if flipped(t) {
			at = 1 - axis
		}
		m = ok.Select(rebase(m, at, old, basis), m)
		v = ok.Select(sort(v, at, keys), v)
	}
	if !first {
		next[stateM], next[stateV] = m, v
	}
	return next, nil
}

// eigenvectors returns the first basis: the eigenvectors of a factor, in descending order of
// eigenvalues, or the old basis if they are not finite.
func eigenvectors(factor, old program.Value) program.Value {
	q := factor.Neg().EighVectors() // eigenvalues ascend, so −L sorts those of L in descending order
	return finite(q).Select(q, old)
}

// iterate performs one step of power iteration on a basis q of factor f: its columns are sorted by
// the estimates of the eigenvalues, diag(qᵀfq), and q becomes (f + εI)·q, orthonormalized. ε is
// shift times the mean eigenvalue; f + εI has the same eigenvectors as f.
//
// A factor has zero rows where the gradient has always been zero, as for tokens of the embedding
// that do not occur. There f·q is zero, too, and has too few independent columns for a basis; ε·q
// adds those of the old basis. If all of f is zero, or something is not finite, ok is false, and
// the old basis must be kept. keys are the values by which the columns of the old basis were
// sorted, in descending order.
func iterate(f, q program.Value) (basis, keys, ok program.Value) {
	image := f.MatMul(q)
	keys = q.Dot(image, [2][]int{{0}, {0}}, [2][]int{{1}, {1}}) // products of columns
	mean := keys.ReduceSum(0).Scale(1 / float64(f.Shape()[0]))
	basis = image.Add(q.Mul(mean.Scale(shift))).SortColumns(keys).QR()
	return basis, keys, finite(basis).And(mean.Gt(f.Builder().Const(0)))
}

// rebase transforms v along an axis from one basis to another. Two products with v are cheaper than
// one with the product of the bases, unless v is longer along its other axes.
func rebase(v program.Value, axis int, from, to program.Value) program.Value {
	n := from.Type().Size()
	if v.Type().Size() < n {
		return along(along(v, axis, from, 1), axis, to, 0)
	}
	return along(v, axis, product(from, to, 0, 0), 0)
}

// sort reorders the matrix v along an axis by descending keys.
func sort(v program.Value, axis int, keys program.Value) program.Value {
	if axis == 0 {
		return v.Transpose(1, 0).SortColumns(keys).Transpose(1, 0)
	}
	return v.SortColumns(keys)
}

// finite reports whether a basis is finite. If any element is not finite, all of them are NaN, so
// it suffices to check the first row.
func finite(q program.Value) program.Value {
	row := q.Slice([]int{0, 0}, []int{1, q.Shape()[1]}, []int{1, 1})
	all := row.IsFinite().Convert(program.Float).ReduceMin(1).ReduceMin(0)
	return all.Gt(q.Builder().Const(0))
}
