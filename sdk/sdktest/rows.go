package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// exactness is the relative difference that another order of summation may make in binary64.
const exactness = 1e-12

// checkRows compares each row of a matrix with the same row alone, and with itself among
// other rows.
func (q *quantizerRun) checkRows(t *trial, in *instance, x []float64) {
	rows, d := in.shape[0], in.shape[1]
	if rows == 1 {
		return
	}
	if slices.Contains(in.influence(x, 0)[d:], true) {
		t.notef("one scale for the whole tensor with %s", settingsOrDefaults(in.settings))
		return
	}
	if in.hasMemory() {
		t.notef("not with trained parameters or state, which rows share")
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
}

func (in *instance) sameRow(where string, x []float64, got, want quantization, allowed float64) {
	same := func(what string, got, want []float64, allowed float64) {
		in.t.within(in.given(x), what+" of a row "+where+", against the row in a matrix", []int{1, len(x)}, got, want, upTo(allowed))
	}
	same("value", got.value, want.value, allowed)
	same("codes", got.codes, want.codes, 0)
	same("mask", got.mask, want.mask, 0)
}

func (q *quantizerRun) rowAlone(in *instance, x []float64, want quantization) {
	s, err := q.ask(in.variant, in.asked, 1, len(x))
	if ofAttention(in.asked) && isRefusal(err) {
		return // groups of tokens need several
	}
	in.t.must(s.example, err)
	if in.evaluates && s.evaluation != nil {
		s = s.evaluation
	}
	alone := s.instance(in.t, in.m, x)
	out := alone.quantize(x)
	if q.anyRounding(in.siteAnswer) {
		alone.sameError(x, out.value, want.value)
		return
	}
	alone.sameRow("alone", x, out, want, exactness*largest(want.value))
}

// largestErrorRatio is the largest factor allowed between the errors of two random roundings of
// one row. It applies to rows of at least enoughEntries entries, whose errors depend little on
// chance.
const (
	largestErrorRatio = 3
	enoughEntries     = 31
)

// sameError compares a row alone with the row in a matrix for a rounding whose noise may depend
// on the place of the row. The grid must be the same, and so must the size of the error.
func (in *instance) sameError(x, alone, inMatrix []float64) {
	if len(x) < enoughEntries {
		return
	}
	in.t.announce()
	a, b := relativeError(alone, x), relativeError(inMatrix, x)
	if !(a <= max(largestErrorRatio*b, rowError) && b <= max(largestErrorRatio*a, rowError)) {
		in.t.failf(in.at(), "the error of a row alone is %.3g of its norm, in a matrix %.3g", a, b)
	}
}

func (q *quantizerRun) checkFixed(t *trial) {
	holds, some, claimed := true, false, false
	q.onOracle(func(_ *trial, in *instance, x []float64) {
		once := in.quantize(x)
		twice := in.quantize(once.value)
		allowed := exactness * largest(once.value)
		if in.variant.claims(sdk.ClaimIdempotent) {
			claimed = true
			in.within(x, "Q(Q(x)), against Q(x), as idempotent claims,", twice.value, once.value, upTo(allowed))
			in.equal(x, "codes of Q(Q(x)), against those of Q(x), as idempotent claims,", twice.codes, once.codes)
			return
		}
		some = true
		for i, v := range twice.value {
			holds = holds && distance(v, once.value[i]) <= allowed
		}
	})(t)
	switch {
	case claimed:
	case !some:
		t.skipf("not claimed")
	default:
		t.skipf("not claimed; it %s", map[bool]string{true: "holds", false: "does not hold"}[holds])
	}
}

// checkHomogeneous multiplies x by c. If c is a power of two, both sides must have the
// same bits. If c is another factor, there are rounding errors, and an entry on a
// boundary may go either way, whatever the precision in which the plugin keeps its scale.
// On a grid that puts entries of every tensor on a boundary, the rounding of the scale
// decides where they go; such a grid has to be claimed (see [sdk.ClaimTies]).
func (q *quantizerRun) checkHomogeneous(t *trial, in *instance, x []float64) {
	if !in.Homogeneous {
		return
	}
	e, err := expect(in.Program, in.inputs(x))
	t.must(in.at(), err)
	base, spread := newQuantization(e.outputs), e.spread[spec.OutputValue]
	for _, c := range []float64{0x1p10, 0x1p-20} {
		out := in.quantize(scaled(c, x))
		in.equal(x, "Q(c·x)/c, against Q(x),", scaled(1/c, out.value), base.value)
		in.equal(x, "codes of c·x, against those of x,", out.codes, base.codes)
		in.equal(x, "mask of c·x, against that of x,", out.mask, base.mask)
	}
	if in.variant.claims(sdk.ClaimTies) {
		return
	}
	for _, c := range []float64{3.7, 0.013} {
		out := in.quantize(scaled(c, x))
		in.within(x, "Q(c·x)/c, against Q(x), for a c that is no power of two (if entries lie half way between two levels, "+claim(sdk.ClaimTies)+")", scaled(1/c, out.value), base.value, func(i int) float64 {
			if e.steady(spec.OutputValue, i) {
				return closeness * largest(base.value)
			}
			return 2 * spread[i]
		})
	}
}
