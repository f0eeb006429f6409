package sdktest

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// exactness is what the order of a sum may do in binary64.
const exactness = 1e-12

// checkRows compares each row of a matrix with the same row alone, and with itself among
// other rows.
func (q *quantizerRun) checkRows(t *trial) {
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		rows, d := in.shape[0], in.shape[1]
		if rows == 1 {
			return
		}
		shared, err := in.influence(x, 0)
		if !t.ok(in.at(), err) {
			return
		}
		if slices.Contains(shared[d:], true) {
			t.notef("one scale for the whole tensor with %s", settingsOrDefaults(in.settings))
			return
		}
		if in.Init != nil {
			t.notef("not with trained parameters, which rows share")
			return
		}
		base, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		for i := range rows {
			row := base.part(i*d, (i+1)*d)
			in.rowAmongOthers(t, x, i, row)
			q.rowAlone(t, in, x[i*d:(i+1)*d], row)
		}
	})
}

// rowAmongOthers changes all rows but one.
func (in *instance) rowAmongOthers(t *trial, x []float64, row int, want answer) {
	d := in.shape[1]
	others := scaled(-3, x)
	copy(others[row*d:(row+1)*d], x[row*d:(row+1)*d])
	out, err := in.quantize(others)
	if !t.ok(in.at(), err) {
		return
	}
	in.sameRow(t, "among other rows", x[row*d:(row+1)*d], out.part(row*d, (row+1)*d), want, 0)
}

// sameRow compares a row with what it was in the matrix.
func (in *instance) sameRow(t *trial, where string, x []float64, got, want answer, allowed float64) {
	p := in.given(x)
	shape := []int{1, len(x)}
	t.within(p, "value of a row "+where+", against the row in a matrix", shape, got.value, want.value, func(int) float64 { return allowed })
	t.equal(p, "codes of a row "+where+", against the row in a matrix", shape, got.codes, want.codes)
	t.equal(p, "mask of a row "+where+", against the row in a matrix", shape, got.mask, want.mask)
}

func (q *quantizerRun) rowAlone(t *trial, in *instance, x []float64, want answer) {
	s, err := q.ask(in.variant, sdk.Role(in.role), 1, len(x))
	if !t.ok(s.place, err) {
		return
	}
	alone, err := s.instance(in.m, x)
	if !t.ok(s.place, err) {
		return
	}
	out, err := alone.quantize(x)
	switch {
	case !t.ok(alone.at(), err):
	case q.traits.AnyRounding:
		alone.sameError(t, x, out.value, want.value)
	default:
		alone.sameRow(t, "alone", x, out, want, exactness*largest(want.value))
	}
}

// alike is the factor between the errors of two roundings of one row, where chance makes
// some of it; enoughEntries are as many as leave it little room.
const (
	alike         = 3
	enoughEntries = 31
)

// sameError is for a rounding that may depend on the place of the row: its noise is
// another one, but not its grid.
func (in *instance) sameError(t *trial, x, alone, inMatrix []float64) {
	if len(x) < enoughEntries {
		return
	}
	t.tried()
	relative := func(value []float64) float64 {
		e := difference(value, x)
		return math.Sqrt(dotProduct(e, e) / dotProduct(x, x))
	}
	a, b := relative(alone), relative(inMatrix)
	if !(a <= max(alike*b, rowError) && b <= max(alike*a, rowError)) {
		t.failf(in.at(), "the error of a row alone is %.3g of its norm, in a matrix %.3g", a, b)
	}
}
