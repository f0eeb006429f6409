package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// exactness is the relative difference that another order of summation may make in binary64.
const exactness = 1e-12

// checkRows compares each row of a matrix with the same row alone, and with itself among
// other rows.
func (q *quantizerRun) checkRows(t *trial) {
	q.onOracle(t, func(in *instance, x []float64) {
		rows, d := in.shape[0], in.shape[1]
		if rows == 1 {
			return
		}
		if slices.Contains(in.influence(x, 0)[d:], true) {
			t.notef("one scale for the whole tensor with %s", settingsOrDefaults(in.settings))
			return
		}
		if in.Init != nil {
			t.notef("not with trained parameters, which rows share")
			return
		}
		base := in.quantize(x)
		for i := range rows {
			from, to := i*d, (i+1)*d
			row, want := x[from:to], base.part(from, to)
			others := scaled(-3, x)
			copy(others[from:to], row)
			t.run(func() {
				in.sameRow("among other rows", row, in.quantize(others).part(from, to), want, 0)
			})
			t.run(func() { q.rowAlone(in, row, want) })
		}
	})
}

// sameRow compares the result for a row with the result for the same row in the matrix.
func (in *instance) sameRow(where string, x []float64, got, want quantization, allowed float64) {
	same := func(what string, got, want []float64, allowed float64) {
		in.t.within(in.given(x), what+" of a row "+where+", against the row in a matrix", []int{1, len(x)}, got, want, upTo(allowed))
	}
	same("value", got.value, want.value, allowed)
	same("codes", got.codes, want.codes, 0)
	same("mask", got.mask, want.mask, 0)
}

func (q *quantizerRun) rowAlone(in *instance, x []float64, want quantization) {
	s, err := q.ask(in.variant, sdk.Role(in.role), 1, len(x))
	in.t.must(s.example, err)
	alone := s.instance(in.t, in.m, x)
	out := alone.quantize(x)
	if q.traits.AnyRounding {
		alone.sameError(x, out.value, want.value)
		return
	}
	alone.sameRow("alone", x, out, want, exactness*largest(want.value))
}

// alike is the largest factor allowed between the errors of two random roundings of one row.
// It applies to rows of at least enoughEntries entries, whose errors depend little on chance.
const (
	alike         = 3
	enoughEntries = 31
)

// sameError compares a row alone with the row in a matrix for a rounding whose noise may depend
// on the place of the row. The grid must be the same, and so must the size of the error.
func (in *instance) sameError(x, alone, inMatrix []float64) {
	if len(x) < enoughEntries {
		return
	}
	in.t.announce()
	a, b := relativeError(alone, x), relativeError(inMatrix, x)
	if !(a <= max(alike*b, rowError) && b <= max(alike*a, rowError)) {
		in.t.failf(in.at(), "the error of a row alone is %.3g of its norm, in a matrix %.3g", a, b)
	}
}
