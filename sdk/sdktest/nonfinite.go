package sdktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// influences holds what [instance.influence] found for elements of x, by their indices. Checks ask
// once for each machine, but the answer is that of the reference implementation.
type influences struct {
	x  []float64
	of map[int][]bool
}

// influence marks the elements whose value changes when element j of x takes other finite values:
// those that share a scale with it, or are mixed with it by a rotation. The result is read-only.
func (in *instance) influence(x []float64, j int) []bool {
	if in.hasMemory() { // it depends on more than x
		return in.influenced(x, j)
	}
	known := &in.influences
	if !slices.Equal(known.x, x) {
		*known = influences{x: x, of: map[int][]bool{}}
	}
	if known.of[j] == nil {
		known.of[j] = in.influenced(x, j)
	}
	return known.of[j]
}

// influenced computes the result of [instance.influence]. On a coarse grid an element may be
// rounded to zero for any scale. Therefore it also tries tensors whose elements all have the
// largest magnitude of x, once positive and once negative: no grid rounds both to zero.
func (in *instance) influenced(x []float64, j int) []bool {
	on := *in
	on.m = Reference{}
	shared := make([]bool, len(x))
	shared[j] = true
	most := largest(x)
	for _, x := range [][]float64{x, full(most, len(x)), full(-most, len(x))} {
		base := on.quantize(x)
		// The last factor moves a power-of-two scale beyond the exponent range of small floats.
		for _, factor := range []float64{0, 3, 50, -777.7, 1e12} {
			if !slices.Contains(shared, false) {
				return shared
			}
			out := on.quantize(with(x, j, factor*most))
			for i := range shared {
				shared[i] = shared[i] || out.value[i] != base.value[i]
			}
		}
	}
	return shared
}

// hull fills the gaps between the affected elements of each row, because an element that happens to
// keep its value may still share the scale of its neighbors.
func hull(affected []bool, d int) []bool {
	out := slices.Clone(affected)
	for row := range slices.Chunk(out, d) {
		if first := slices.Index(row, true); first >= 0 {
			last := d - 1
			for !row[last] {
				last--
			}
			for i := first; i <= last; i++ {
				row[i] = true
			}
		}
	}
	return out
}

// poisoning is a matrix in which the element with index at is set to NaN or infinity.
type poisoning struct {
	*instance
	x        []float64
	at       int
	shared   []bool // the elements that at influences while it is finite; nil with memory
	base     quantization
	gradient []float64 // of the unmodified matrix
	dy       []float64
}

func (q *quantizerRun) checkNonFinite(t *trial, in *instance, x []float64) {
	// Avoid small entries, so that the codes of coarse grids are not zero.
	x = rounded(mapped(x, func(v float64) float64 {
		return math.Copysign(0.5+0.5*math.Abs(math.Tanh(v)), v)
	}))
	p := poisoning{instance: in.from(x), x: x, dy: normal(3, in.shape...),
		at: len(x)/2 - len(x)/2%in.shape[1] + in.shape[1]/2}
	shared := func(at int) []bool {
		if in.hasMemory() {
			return nil
		}
		return p.influence(x, at)
	}
	p.base, p.gradient, p.shared = p.quantize(x), p.byX(x, p.dy), shared(p.at)
	affected, ok := p.check(math.NaN())
	if !ok {
		return
	}
	// Which entries are pruned may depend on the one that is not finite; they may stay zero.
	same := func(values []float64) bool {
		return slices.EqualFunc(values, affected, func(v, w float64) bool {
			return math.IsNaN(v) == math.IsNaN(w) || in.variant.claims(sdk.ClaimPrunes) && (v == 0 || w == 0)
		})
	}
	for _, bad := range []float64{math.Inf(1), math.Inf(-1)} {
		if other, ok := p.check(bad); ok && !same(other) {
			t.failf(in.at(), "%v and NaN at %v make different elements NaN", bad, unravel(p.at, in.shape))
		}
	}
	// NaN in any other marked element must make the same elements NaN.
	for i, v := range slices.Backward(affected) {
		if !math.IsNaN(v) || i == p.at {
			continue
		}
		p.at, p.shared = i, shared(i)
		if other, ok := p.check(math.NaN()); ok && !same(other) {
			t.failf(in.at(), "NaN at %v and at one that shares its scale affect different elements",
				unravel(i, p.shape))
		}
		return
	}
}

// check poisons the matrix with one number and returns the values. Those that became NaN must be
// the elements that p.at influences while finite; no other value may change.
func (p poisoning) check(bad float64) (values []float64, ok bool) {
	poisoned := with(p.x, p.at, bad)
	out := p.quantize(poisoned)
	affected := make([]bool, len(p.x))
	for i, v := range out.value {
		affected[i] = math.IsNaN(v)
	}
	what := fmt.Sprintf("with %v at %v, ", bad, unravel(p.at, p.shape))
	p.t.begin()
	reach, wrong, at := hull(p.shared, p.shape[1]), "", p.at
	if !affected[at] {
		wrong = "the value there is not NaN"
	}
	// A trained or stored scale does not depend on the data, and pruning depends on other elements
	// in a different way.
	prunes := p.variant.claims(sdk.ClaimPrunes)
	for i := range affected {
		switch {
		case wrong != "" || p.hasMemory() || prunes:
		case p.shared[i] && !affected[i]:
			wrong, at = "a value that depends on it through its scale is not NaN (if entries are pruned, "+
				claim(sdk.ClaimPrunes)+")", i
		case affected[i] && !reach[i]:
			wrong, at = "a value that does not depend on it is NaN", i
		}
	}
	if wrong != "" {
		f := p.instance.at().failure(what + wrong)
		f.Index, f.Input = unravel(at, p.shape), number(p.x[at])
		p.t.add(f)
		return out.value, false
	}
	if prunes {
		return out.value, len(out.codes) == 0 || p.finite(nil, what+"code", out.codes)
	}
	// same compares a result with the unpoisoned one, except at the affected elements, which must
	// have the given value.
	same := func(name string, got, base []float64, at float64) bool {
		want := slices.Clone(base)
		for i, m := range affected {
			if m {
				want[i] = at
			}
		}
		return p.equal(nil, what+name, got, want)
	}
	ok = same("value", out.value, p.base.value, math.NaN())
	if len(out.codes) > 0 {
		zero, code := 0.0, "code (if another code represents zero, "+claim(sdk.ClaimAnyZeroCode)+")"
		if p.variant.claims(sdk.ClaimAnyZeroCode) {
			zero, code = out.codes[p.at], "code"
		}
		ok = same(code, out.codes, p.base.codes, zero) && ok && p.finite(nil, what+"code", out.codes)
	}
	gradient := p.byX(poisoned, p.dy)
	passes := true
	if len(out.mask) == 0 {
		passes = p.finite(nil, what+"gradient", gradient)
	} else {
		ok = same("mask", out.mask, p.base.mask, 0) && ok
		passes = same("gradient", gradient, p.gradient, 0)
	}
	if !passes {
		p.t.hintAtNaN(gradient)
	}
	return out.value, passes && ok
}

// nearZero bounds the values to which zeros are quantized if zero is not a level: published
// half-integer quantizers add 1e-8 to the scale, or clamp it to at least 1e-5.
const nearZero = 1e-5

func (q *quantizerRun) checkZeros(t *trial, in *instance, _ []float64) {
	zeros, tiny := make([]float64, in.size()), make([]float64, in.size())
	for i := range tiny {
		tiny[i] = 0x1p-149 * float64(1+i%7)
	}
	n := len(tiny)
	for _, x := range [][]float64{full(-0.375, n), full(3, n), tiny, full(0x1p-140, n)} {
		out := in.from(x).quantize(x)
		what := fmt.Sprintf(" of numbers like %v", x[0])
		if !in.finite(x, "value"+what, out.value) || !in.finite(x, "code"+what, out.codes) {
			return
		}
	}
	out := in.from(zeros).quantize(zeros)
	if !in.finite(nil, "value of zeros", out.value) {
		return
	}
	if largest(out.value) > 0 {
		in.within(nil, "value of zeros", out.value, zeros, upTo(nearZero))
		t.notef("zero is not a level with %s", settingsText(in.settings))
		return
	}
	if in.hasMemory() {
		return // if the scale is not computed from them, zeros may be at the end of a grid
	}
	switch {
	case len(out.codes) == 0:
	case in.variant.claims(sdk.ClaimAnyZeroCode):
		in.equal(nil, "codes of zeros, against the first,", out.codes, full(out.codes[0], n))
	default:
		meant := " (if another code represents zero, " + claim(sdk.ClaimAnyZeroCode) + ")"
		in.equal(nil, "codes of zeros"+meant, out.codes, zeros)
	}
	if len(out.mask) > 0 && !in.variant.claims(sdk.ClaimPrunes) {
		const what = "mask of zeros (if entries are pruned, claim " + string(sdk.ClaimPrunes) + ")"
		in.equal(nil, what, out.mask, full(1, n))
	}
}
