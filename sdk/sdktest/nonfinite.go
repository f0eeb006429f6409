package sdktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// influence marks the elements whose value changes when element j of x takes other finite values:
// those that share a scale with it, or are mixed with it by a rotation. It is found on the
// reference implementation. On a coarse grid the code of an element, and with it the value, may be
// zero whatever the scale. So tensors are tried, too, whose elements are all as large as the
// largest of x, once positive and once negative: no grid can make zeros of both (an unsigned grid
// does so only with the negative ones).
func (in *instance) influence(x []float64, j int) []bool {
	on := *in
	on.m = Reference{}
	shared := make([]bool, len(x))
	shared[j] = true
	most := largest(x)
	for _, x := range [][]float64{x, full(most, len(x)), full(-most, len(x))} {
		base := on.quantize(x)
		for _, factor := range []float64{0, 3, 50, -777.7, 1e12} { // the last one moves a power-of-two scale beyond the exponents of a coarse float
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

// hull fills the gaps between the marks of each row, since an element that happens to keep
// its value may still share the scale of those around it.
func hull(marks []bool, d int) []bool {
	out := slices.Clone(marks)
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

// poisoning is one matrix, in which element at is made NaN or infinite.
type poisoning struct {
	*instance
	x        []float64
	at       int
	shared   []bool // what the element at influences while it is finite
	base     quantization
	gradient []float64 // of the matrix as it is
	dy       []float64
}

func (q *quantizerRun) checkNonFinite(t *trial, in *instance, x []float64) {
	// Without small entries, so that the codes of coarse grids are not zero.
	x = rounded(mapped(x, func(v float64) float64 { return math.Copysign(0.5+0.5*math.Abs(math.Tanh(v)), v) }))
	p := poisoning{instance: in.from(x), x: x, dy: normal(3, in.shape...), at: len(x)/2 - len(x)/2%in.shape[1] + in.shape[1]/2}
	p.base, p.gradient = p.quantize(x), p.byX(x, p.dy)
	p.shared = p.influence(x, p.at)
	marks, ok := p.check(math.NaN())
	if !ok {
		return
	}
	for _, bad := range []float64{math.Inf(1), math.Inf(-1)} {
		if other, ok := p.check(bad); ok && !slices.Equal(other, marks) {
			t.failf(in.at(), "%v and NaN at %v make different elements NaN", bad, unravel(p.at, in.shape))
		}
	}
	p.checkPartition(marks)
}

// check poisons with one number and returns which values became NaN.
func (p poisoning) check(bad float64) (marks []bool, ok bool) {
	poisoned := with(p.x, p.at, bad)
	out := p.quantize(poisoned)
	marks = make([]bool, len(p.x))
	for i, v := range out.value {
		marks[i] = math.IsNaN(v)
	}
	what := fmt.Sprintf("with %v at %v, ", bad, unravel(p.at, p.shape))
	if !p.extent(what, marks) {
		return marks, false
	}
	// same compares a result with what it was without poison; at the marks it must
	// have the given value instead. Which entries of a group are pruned may change with the poison.
	reach := p.reach()
	same := func(name string, got, base []float64, at float64) bool {
		want := slices.Clone(base)
		for i, m := range marks {
			switch {
			case m:
				want[i] = at
			case p.variant.claims(sdk.ClaimPrunes) && reach[i] && i < len(got) && !math.IsNaN(got[i]-got[i]):
				want[i] = got[i]
			}
		}
		return p.equal(nil, what+name, got, want)
	}
	ok = same("value", out.value, p.base.value, math.NaN())
	if len(out.codes) > 0 {
		zero := 0.0
		if p.variant.claims(sdk.ClaimAnyZeroCode) {
			zero = out.codes[p.at]
		}
		code := "code"
		if p.base.codes[p.at] != 0 && out.codes[p.at] != 0 && !p.variant.claims(sdk.ClaimAnyZeroCode) {
			code = "code (if another code stands for zero, " + claim(sdk.ClaimAnyZeroCode) + ")"
		}
		ok = same(code, out.codes, p.base.codes, zero) && ok && p.finite(nil, what+"code", out.codes)
	}
	gradient := p.byX(poisoned, p.dy)
	if len(out.mask) == 0 {
		finite := p.finite(nil, what+"gradient", gradient)
		if !finite {
			p.t.hintAtNaN(gradient)
		}
		return marks, finite && ok
	}
	ok = same("mask", out.mask, p.base.mask, 0) && ok
	passes := same("gradient", gradient, p.gradient, 0)
	if !passes {
		p.t.hintAtNaN(gradient)
	}
	return marks, passes && ok
}

// reach marks what the poisoned element may make NaN. What was pruned does not show that it shares
// the scale.
func (p poisoning) reach() []bool {
	reach := hull(p.shared, p.shape[1])
	if !p.variant.claims(sdk.ClaimPrunes) {
		return reach
	}
	for row := range slices.Chunk(reach, p.shape[1]) {
		if slices.Contains(row, true) {
			copy(row, slices.Repeat([]bool{true}, len(row)))
		}
	}
	return reach
}

// extent compares the elements that became NaN with those that the poisoned one
// influences when it is finite.
func (p poisoning) extent(what string, marks []bool) bool {
	p.t.announce()
	fail := func(i int, message string) bool {
		f := p.instance.at().failure(what + message)
		f.Index, f.Input = unravel(i, p.shape), number(p.x[i])
		p.t.add(f)
		return false
	}
	if !marks[p.at] {
		return fail(p.at, "the value there is not NaN")
	}
	if p.hasMemory() {
		return true // a scale that is trained or kept does not depend on the data
	}
	reach := p.reach()
	for i := range marks {
		switch {
		case p.shared[i] && !marks[i] && !p.variant.claims(sdk.ClaimPrunes): // what is pruned depends on others in another way
			return fail(i, "a value that depends on it through its scale is not NaN (if entries are pruned, "+claim(sdk.ClaimPrunes)+")")
		case marks[i] && !reach[i]:
			return fail(i, "a value that does not depend on it is NaN")
		}
	}
	return true
}

// checkPartition poisons another element that became NaN: the same elements must become NaN.
func (p poisoning) checkPartition(marks []bool) {
	for i, m := range slices.Backward(marks) {
		if !m || i == p.at {
			continue
		}
		p.at, p.shared = i, p.influence(p.x, i)
		if other, ok := p.check(math.NaN()); ok && !slices.Equal(other, marks) {
			p.t.failf(p.instance.at(), "NaN at %v makes other elements NaN than one that shares its scale", unravel(i, p.shape))
		}
		return
	}
}

// nearZero bounds what zeros may become if zero is not a level: published half-integer
// quantizers add 1e-8 to their scale, or let it be no less than 1e-5.
const nearZero = 1e-5

func (q *quantizerRun) checkZeros(t *trial, in *instance, _ []float64) {
	zeros := make([]float64, in.size())
	out := in.from(zeros).quantize(zeros)
	if !in.finite(nil, "value of zeros", out.value) {
		return
	}
	if largest(out.value) > 0 {
		in.within(nil, "value of zeros", out.value, zeros, upTo(nearZero))
		t.notef("zero is no level with %s", settingsOrDefaults(in.settings))
		return
	}
	if in.hasMemory() {
		return // with a scale that does not follow from them zeros may lie at the end of a grid
	}
	switch {
	case len(out.codes) == 0:
	case in.variant.claims(sdk.ClaimAnyZeroCode):
		in.equal(nil, "codes of zeros, against the first of them,", out.codes, full(out.codes[0], len(zeros)))
	default:
		in.equal(nil, "codes of zeros (if another code stands for zero, "+claim(sdk.ClaimAnyZeroCode)+")", out.codes, zeros)
	}
	if len(out.mask) > 0 && !in.variant.claims(sdk.ClaimPrunes) {
		in.equal(nil, "mask of zeros (if entries are pruned, "+claim(sdk.ClaimPrunes)+")", out.mask, full(1, len(zeros)))
	}
}

func settingsOrDefaults(settings map[string]any) string {
	if len(settings) == 0 {
		return "the defaults"
	}
	return settingsText(settings)
}

func (q *quantizerRun) checkConstants(t *trial, in *instance, _ []float64) {
	n := in.size()
	tiny := make([]float64, n)
	for i := range tiny {
		tiny[i] = 0x1p-149 * float64(1+i%7)
	}
	for _, x := range [][]float64{full(-0.375, n), full(3, n), tiny, full(0x1p-140, n)} {
		out := in.from(x).quantize(x)
		if !in.finite(x, fmt.Sprintf("value of numbers like %v", x[0]), out.value) {
			return
		}
		if len(out.codes) > 0 {
			in.finite(x, fmt.Sprintf("code of numbers like %v", x[0]), out.codes)
		}
	}
}

// checkLargest puts a row of the largest numbers first. In binary32 their squares
// overflow, and what becomes of the row is the plugin's choice; in binary64 it is a row
// like any other.
func (q *quantizerRun) checkLargest(t *trial, in *instance, x []float64) {
	d := in.shape[1]
	huge := slices.Clone(x)
	for j := range d {
		huge[j] = math.MaxFloat32 * float64(1-2*(j%2))
	}
	out := in.quantize(huge)
	if in.m == (Reference{}) {
		in.finite(huge, "value beside the largest numbers", out.value)
	}
	if in.Init != nil || !in.independentRows(x) {
		return // one scale, or one trained parameter, for all rows
	}
	below, want := out.part(d, len(x)), in.quantize(x).part(d, len(x))
	in.equal(nil, "value in a row below one of the largest numbers", below.value, want.value)
	in.equal(nil, "codes in a row below one of the largest numbers", below.codes, want.codes)
}
