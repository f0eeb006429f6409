package sdktest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file contains the checks of a quantizer's grid: which elements share a scale, to which
// levels values are rounded, and whether codes and masks agree with them.

// exactness is the relative difference due to another summation order in binary64.
const exactness = 1e-12

// enoughEntries is the size of a tensor above which its error hardly depends on chance.
const enoughEntries = 31

// independentRows reports whether there are several rows, none of which depends on the first.
func (in *instance) independentRows(x []float64) bool {
	return in.shape[0] > 1 && !slices.Contains(in.influence(x, 0)[in.shape[1]:], true)
}

// checkRows compares the result for each row of a matrix with those for the same row among other
// rows and for the row alone, unless stochastic rounding may depend on its position.
func (q *quantizerRun) checkRows(t *trial, in *instance, x []float64) {
	if in.hasMemory() || !in.independentRows(x) {
		return
	}
	rows, d := in.shape[0], in.shape[1]
	base := in.quantize(x)
	for i := range rows {
		from, to := i*d, (i+1)*d
		row, want := x[from:to], base.part(from, to)
		same := func(where string, got quantization, allowed float64) {
			on := func(what string) string {
				return what + " of a row " + where + ", against the row in a matrix"
			}
			shape := []int{1, d}
			t.within(in.given(row), on("value"), shape, got.value, want.value, upTo(allowed))
			t.equal(in.given(row), on("codes"), shape, got.codes, want.codes)
			t.equal(in.given(row), on("mask"), shape, got.mask, want.mask)
		}
		others := scaled(-3, x)
		copy(others[from:to], row)
		t.run(func() { same("among other rows", in.quantize(others).part(from, to), 0) })
		if q.anyRounding(in.siteAnswer) {
			continue
		}
		t.run(func() {
			s, err := q.ask(in.variant, in.site.Role, 1, d)
			if ofAttention(in.site.Role) && isRefusal(err) {
				return // token groups need several rows
			}
			t.must(s.example, err)
			if in.evaluates && s.evaluation != nil {
				s = s.evaluation
			}
			same("alone", s.instance(t, in.m, row).quantize(row), exactness*largest(want.value))
		})
	}
}

// checkScope finds by experiment which elements share a scale, and compares them with the claim or,
// without a claim, with the declared grid. Without both, one scale for a weight is noted; an
// activation token that depends on other tokens, and scales of columns, are failures. With settings
// fixed by the caller, they are only noted.
func (q *quantizerRun) checkScope(t *trial) {
	for _, v := range slices.Concat(q.space.variants[:1], q.space.claimed) {
		for _, role := range q.roles() {
			name := sdk.ClaimScaleScope
			if role == sdk.RoleKey && v.claims(sdk.ClaimKeyScope) {
				name = sdk.ClaimKeyScope
			}
			value, _ := v.about.Claimed(name, v.values)
			claimed, _ := value.(string)
			// A regular shape, rows of odd length, and rows longer than typical blocks.
			for _, shape := range [][]int{{3, 128}, {4, 33}, {3, 640}} {
				s, err := q.ask(v, role, shape...)
				if err != nil || s.hasMemory() {
					continue // other checks report errors
				}
				t.run(func() {
					in := s.instance(t, Reference{}, normal(17, s.shape...))
					t.begin()
					in.judgeScope(t, name, claimed)
				})
			}
		}
	}
}

// judgeScope compares the scope of a scale, as seen from the first entry, with the claimed one.
func (in *instance) judgeScope(t *trial, name sdk.ClaimName, claimed string) {
	d, affected := in.shape[1], in.influence(normal(17, in.shape...), 0)
	seen := scopeOf(affected, d)
	row := seen == sdk.ScopeBlock || seen == sdk.ScopeRow
	beyond := -1 // an affected entry outside the declared group of the first
	if g := in.Grid.Group; g > 0 && g < d && !in.mixes() {
		if beyond = slices.Index(affected[g:d], true); beyond >= 0 {
			beyond += g
		}
	}
	as := claim(sdk.ClaimScaleScope) + " as " + seen
	if in.site.Role == sdk.RoleKey {
		as += ", or key_scope if it is so only for keys"
	}
	switch {
	case claimed == "" && row && beyond >= 0:
		t.failf(in.at(), "the Grid declares groups of %d entries, but the level of entry %d "+
			"depends on entry 0", in.Grid.Group, beyond)
	case seen == claimed, claimed == "" && row:
	case claimed == sdk.ScopeBlock && row && d <= 128: // a block may span the row
	case claimed != "":
		t.failf(in.at(), "the levels of an entry depend on its %s; %s claims %s", seen, name, claimed)
	case len(in.settings) > 0 || seen == sdk.ScopeTensor && in.site.Role == sdk.RoleWeight:
		t.notef("the levels of an entry of a %s depend on its %s with %s", in.role, seen,
			settingsText(in.settings))
	case seen == sdk.ScopeTensor:
		t.failf(in.at(), "the levels of a token depend on other tokens; if this is intended, %s", as)
	default:
		t.failf(in.at(), "the levels of an entry depend on its column instead of its row, "+
			"the last axis; if this is intended, %s", as)
	}
}

// scopeOf returns the scope of the scale of the first entry of a matrix with d columns, given the
// entries that depend on it.
func scopeOf(affected []bool, d int) string {
	column, others := false, false
	for i, m := range affected[d:] {
		column, others = column || m && i%d == 0, others || m && i%d != 0
	}
	switch {
	case others:
		return sdk.ScopeTensor
	case column:
		return sdk.ScopeColumn
	case !slices.Contains(affected[d/2:d], true):
		return sdk.ScopeBlock
	}
	return sdk.ScopeRow
}

// checkNearest sweeps one entry of the second row of a matrix through its range, while the sum, the
// sum of squares and the maximum of the row, and therefore its scale, stay constant: a second entry
// moves in the opposite direction, and two more compensate the squares. The four entries have the
// indices 8 to 11 in the row, so in any block of 16 or more entries they share the scale with the
// largest entry, which follows them. If the other entries of the matrix do not keep their values,
// the entry is mixed with others, or the scale depends on something else.
func (q *quantizerRun) checkNearest(t *trial, in *instance, x []float64) {
	if q.anyRounding(in.siteAnswer) {
		if in.variant.claims(sdk.ClaimAnyRounding) {
			t.notef("any_rounding is claimed")
		}
		return
	}
	rows, d := in.shape[0], in.shape[1]
	if d%2 == 0 || d < 16 || rows < 2 {
		return // only rows of odd length are certainly not rotated, and the sweep needs enough entries
	}
	const points, span = 401, 2.4
	at := d + 8
	row := mapped(x, func(v float64) float64 { return 2 * math.Tanh(v/2) })
	row[d+13], row[d+14] = 2.5, -2.5
	var inputs, values, others []float64
	for i := range points {
		v := span * (2*float64(i)/(points-1) - 1)
		rest := math.Sqrt(span*span - v*v)
		copy(row[at:], []float64{v, -v, rest, -rest})
		value := in.quantize(row).value
		inputs, values = append(inputs, v), append(values, value[at])
		value = slices.Delete(slices.Clone(value), at, at+4)
		if others == nil {
			others = value
		}
		if !slices.EqualFunc(value, others, func(a, b float64) bool { return distance(a, b) <= 1e-9 }) {
			return
		}
	}
	levels := distinct(values)
	if len(levels) < 2 || len(levels) > points/2 {
		return
	}
	nearest := slices.Clone(values) // at a tie, the level that was chosen
	for i, v := range inputs {
		for _, l := range levels {
			if math.Abs(l-v) < math.Abs(nearest[i]-v)-1e-6 {
				nearest[i] = l
			}
		}
	}
	if t.within(in.given(inputs), "value of an entry for which there is a nearer level "+
		"(if this is intended, "+claim(sdk.ClaimAnyRounding)+")", nil, values, nearest, upTo(1e-6)) {
		copy(row[at:], []float64{0, 0, span, -span})
		in.checkReach(row, levels)
	}
}

func distinct(values []float64) []float64 {
	return slices.CompactFunc(slices.Sorted(slices.Values(values)),
		func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 })
}

// checkReach compares the largest entry of a row of checkNearest, with either sign, with the
// outermost levels. If the scale is proportional to the entry, and the grid would contain the entry
// if continued with equal steps, the scale was computed from it, and the grid ends too early. The
// largest entry of the other sign is smaller, for grids whose longer side follows the largest.
func (in *instance) checkReach(row, levels []float64) {
	n := len(levels)
	if n < 4 {
		return
	}
	step := (levels[n-1] - levels[0]) / float64(n-1)
	for i, l := range levels {
		if math.Abs(l-levels[0]-float64(i)*step) > 1e-6*step {
			return // the levels are not equidistant
		}
	}
	ends := []int{in.shape[1] + 13, in.shape[1] + 14}
	for i, at := range ends {
		row := slices.Clone(row)
		row[ends[1-i]] /= 2
		value, twice := in.quantize(row).value, slices.Clone(row)
		twice[at] *= 2
		doubled := in.quantize(twice).value
		missing := math.Abs(row[at]-value[at]) / step
		follows := math.Abs(doubled[at]-2*value[at]) <= 1e-6*step
		if k := math.Round(missing); follows && k >= 1 && k <= 2 && math.Abs(missing-k) < 1e-6 {
			in.t.begin()
			in.t.add(in.given(row).element(fmt.Sprintf("the largest entry of its row, %v steps of the "+
				"scale, is clipped to %v: is the bound off by one? (if this is intended, %s)",
				math.Round(math.Abs(row[at])/step), math.Round(math.Abs(value[at])/step),
				claim(sdk.ClaimAnyRounding)), at, in.shape, value))
			return
		}
	}
}

// Under default settings, quantization must scale values by a factor between least and greatest.
const (
	least    = 0.5
	greatest = 1.5
	rowError = 0.1 // acceptable error of a row, relative to its norm
)

// checkError quantizes a matrix of uniform random numbers, which has no outliers to clip.
func (q *quantizerRun) checkError(t *trial) {
	const rows, width = 16, 256
	for _, v := range q.space.core() {
		for _, s := range q.sites(v, rows, width) {
			t.run(func() {
				r := rand.New(rand.NewPCG(9, 1))
				x := draw(func() float64 { return 2*r.Float64() - 1 }, s.shape)
				in := s.instance(t, Reference{}, x)
				value := in.quantize(x).value
				t.begin()
				errs := make([]float64, rows)
				for i := range errs {
					errs[i] = relativeError(value[i*width:(i+1)*width], x[i*width:(i+1)*width])
				}
				median := slices.Sorted(slices.Values(errs))[rows/2]
				for i, e := range errs { // one rotated entry may be clipped
					if !(e <= max(2*median, rowError)) {
						t.failf(in.at(), "the error of row %d is %.3g of its norm; the median is %.3g", i, e, median)
						break
					}
				}
				if len(v.changed) > 0 { // a caller may choose a coarse or an unsigned grid
					return
				}
				e := axpy(value, -1, x)
				mean := floats.Sum(e) / float64(len(e))
				if rms := rootMeanSquare(e); math.Abs(mean) > 0.3*rms {
					t.failf(in.at(), "the mean of Q(x) − x is %.3g, its root mean square %.3g: "+
						"the rounding is biased", mean, rms)
				}
				if g := floats.Dot(x, value) / floats.Dot(x, x); !(g > least && g < greatest) {
					t.failf(in.at(), "Q(x) is on average %.3g times x: the scale is wrong", g)
				}
			})
		}
	}
}

func (q *quantizerRun) checkFixed(t *trial, in *instance, x []float64) {
	if in.variant.claims(sdk.ClaimIdempotent) {
		once := in.quantize(x)
		twice := in.quantize(once.value)
		in.within(x, "Q(Q(x)), against Q(x) (idempotent is claimed),", twice.value, once.value,
			upTo(exactness*largest(once.value)))
		in.equal(x, "codes of Q(Q(x)), against Q(x) (idempotent is claimed),", twice.codes, once.codes)
	}
}

// checkHomogeneous multiplies x by c. If c is a power of two, both sides must be equal bit for bit.
// Otherwise there are rounding errors, and an entry on a rounding boundary may go either way, in
// whatever precision the plugin keeps its scale. If a grid puts entries of every tensor on a
// boundary, rounding errors of the scale decide where they go; such a grid must be claimed (see
// [sdk.ClaimTies]).
func (q *quantizerRun) checkHomogeneous(t *trial, in *instance, x []float64) {
	if !in.Homogeneous {
		return
	}
	e, err := expect(in.Program, in.inputs(in.Program, x))
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
	most := largest(base.value)
	for _, c := range []float64{3.7, 0.013} {
		out := in.quantize(scaled(c, x))
		in.within(x, "Q(c·x)/c, against Q(x), for a c that is not a power of two "+
			"(if entries are halfway between two levels, "+claim(sdk.ClaimTies)+")",
			scaled(1/c, out.value), base.value, func(i int) float64 {
				if spread[i] <= steadiness*most {
					return closeness * most
				}
				return 2 * spread[i]
			})
	}
}

// maskWidth is the length of the row for which masks are compared with errors: odd, so that the row
// is not rotated, and long enough to have entries on most levels.
const maskWidth = 513

// spreadRow returns a row of normal random numbers in which every fourth is replaced by one of
// evenly spread numbers up to six standard deviations.
func spreadRow() []float64 {
	x := normal(23, 1, maskWidth)
	for i := 0; i < len(x); i += 4 {
		_, part := math.Modf(float64(i/4) * math.Phi) // evenly spread in any part of the row
		x[i] = float64(float32(6 * (2*part - 1)))
	}
	return x
}

// checkMask checks that an entry whose gradient passes is near its level, not beyond the end of the
// grid. A mask that stops nothing is allowed; a mask that stops some entries but passes clipped
// ones has a threshold that does not match the grid.
func (q *quantizerRun) checkMask(t *trial) {
	v := q.space.variants[0]
	for _, name := range []sdk.ClaimName{
		sdk.ClaimAnyMask, sdk.ClaimAnyGradient, sdk.ClaimAnyRounding} {
		if v.claims(name) {
			t.skipf("not applicable: %s is claimed", name)
			return
		}
	}
	for _, s := range q.sites(v, 1, maskWidth) {
		if len(s.settings) > 0 { // a caller may choose any mask
			continue
		}
		t.run(func() {
			x := spreadRow()
			in := s.instance(t, Reference{}, x)
			out := in.quantize(x)
			if len(out.mask) == 0 || !slices.Contains(out.mask, 0) {
				return
			}
			group := slices.Repeat([]bool{true}, len(x))
			if size := in.Grid.Group; size > 0 {
				for i := range group {
					group[i] = i/size == maskWidth/2/size
				}
			} else if in.Grid == (sdk.Grid{}) && !in.hasMemory() { // find it by trial
				group = hull(in.influence(x, maskWidth/2), maskWidth)
			}
			t.begin()
			var levels []float64
			for i, v := range out.value {
				if group[i] {
					levels = append(levels, v)
				}
			}
			levels = distinct(levels)
			worst, most := -1, 1.0
			for i, v := range out.value {
				if !group[i] || out.mask[i] == 0 {
					continue
				}
				k, gap := slices.IndexFunc(levels, func(l float64) bool { return math.Abs(l-v) <= 1e-9 }), 0.0
				if k > 0 {
					gap = levels[k] - levels[k-1]
				}
				if k+1 < len(levels) {
					gap = max(gap, levels[k+1]-levels[k])
				}
				if off := math.Abs(v-x[i]) / (gap / 2 * (1 + 1e-6)); off > most {
					worst, most = i, off
				}
			}
			if worst >= 0 {
				t.add(in.given(x).element("the mask passes an entry that is clipped: "+
					"it is farther from its value than half a step (if this is intended, "+
					claim(sdk.ClaimAnyMask)+")", worst, in.shape, out.value))
			}
		})
	}
}

func (q *quantizerRun) checkCount(t *trial) {
	const name = "bits"
	if !slices.ContainsFunc(q.about.Parameters, func(p sdk.Parameter) bool {
		return p.Name == name && p.Type == sdk.TypeInt
	}) {
		t.skipf("not applicable: there is no parameter bits")
		return
	}
	for _, v := range q.space.variants {
		if _, ok := v.changed[name]; len(v.changed) > 1 || len(v.changed) == 1 && !ok {
			continue // another parameter may override bits
		}
		bits := v.values.Int(name)
		for _, s := range q.sites(v, 1, maskWidth) {
			t.run(func() {
				x := spreadRow()
				codes := s.instance(t, Reference{}, x).quantize(x).codes
				if codes == nil || bits < 1 { // for example, 0 for an unlimited number
					return
				}
				t.begin()
				if n := len(slices.Compact(slices.Sorted(slices.Values(codes)))); n > 1<<bits {
					t.failf(s.on(Reference{}), "there are %d codes, from %v to %v, but %d bits have only %d",
						n, slices.Min(codes), slices.Max(codes), bits, 1<<bits)
				}
			})
		}
	}
}

// checkCodes checks that codes are integers, that codes and scales match a declared grid, and that
// values equal the unpacked codes bit for bit, for ordinary and unusual rows.
func (q *quantizerRun) checkCodes(t *trial, in *instance, x []float64) {
	for _, x := range append(unusual(x, in.shape[1]), x) {
		out := in.quantize(x)
		if out.codes == nil {
			return
		}
		whole := mapped(out.codes, func(v float64) float64 {
			if math.IsNaN(v - v) {
				return 0 // equal to none of these
			}
			return math.RoundToEven(v)
		})
		in.equal(x, "codes, against the nearest integers,", out.codes, whole)
		if in.evaluation != nil { // Unpack and Grid belong to the evaluation program
			continue
		}
		if in.Grid != (spec.Grid{}) {
			in.checkGrid(x, out)
		}
		if in.Unpack != nil {
			unpacked := in.run(in.Unpack, tensors{
				spec.OutputCodes: out.outputs[spec.OutputCodes],
				spec.OutputScale: out.outputs[spec.OutputScale]})
			in.equal(x, "unpacked value", unpacked[spec.OutputValue].Float64s(), out.value)
		}
	}
}

// checkGrid compares the values with the grid that the quantizer declares for evaluation. Values
// that are rotated back are not compared.
func (in *instance) checkGrid(x []float64, out quantization) {
	scale := out.outputs[spec.OutputScale].Float64s()
	columns, groups, minima := in.shape[1], 1, []float64{0}
	if n := in.Grid.PerGroup(); n > 1 && len(scale)%n == 0 {
		pairs := scale
		scale, minima = nil, nil
		for i := 0; i < len(pairs); i += n {
			scale, minima = append(scale, pairs[i]), append(minima, pairs[i+1])
		}
	}
	if g := in.Grid.Group; g > 0 {
		groups = (columns + g - 1) / g
	}
	if n := len(scale); n != in.shape[0]*groups && (n != 1 || in.Grid.Group > 0) {
		in.t.failf(in.at(), "got %d scales, but on the Grid a row of %d elements has %d groups",
			n, columns, groups)
		return
	}
	want, terms := slices.Clone(out.value), slices.Clone(out.value)
	least, most := make([]int32, len(scale)), make([]int32, len(scale))
	for i, v := range out.value {
		code, group := int32(out.codes[i]), 0
		if len(scale) > 1 {
			group = i/columns*groups + i%columns*groups/max(columns, groups*in.Grid.Group)
		}
		s, minimum := scale[group], minima[min(group, len(minima)-1)]
		if !in.Grid.Holds(code) && (code != 0 || v != 0 && v == v) {
			in.t.failf(in.at(), "code %d is not one of the Grid's codes %v", code, in.Grid.Codes())
			return
		}
		least[group], most[group] = min(least[group], code), max(most[group], code)
		if span := int32(in.Grid.Span); span > 0 && most[group]-least[group] > span {
			in.t.failf(in.at(), "codes from %d to %d, 0 among them, share a scale, and the Grid's Span is %d",
				least[group], most[group], span)
			return
		}
		if v == v { // NaN has no code
			v := float64(in.Grid.Number(code)) * s
			want[i], terms[i] = v+minimum, math.Abs(v)+math.Abs(minimum)
		}
	}
	if !in.mixes() {
		in.within(x, "value, against the number of its code on the Grid times the scale,",
			out.value, want, func(i int) float64 { return tolerance(0, 1e-6, terms[i]) })
	}
}

func (s *siteAnswer) mixes() bool {
	return slices.ContainsFunc(s.Program.Nodes, func(n program.Node) bool {
		return n.Op == program.OpHadamard || n.Op == program.OpDot
	})
}

// unusual returns two matrices like x, with rows of d entries. The first rows of one are zero,
// constant, large and small; those of the other contain NaN, infinities and −0.
func unusual(x []float64, d int) [][]float64 {
	finite, broken := slices.Clone(x), slices.Clone(x)
	for i := range x {
		switch i / d {
		case 0:
			finite[i] = 0
		case 1:
			finite[i] = -0.375
		case 2:
			finite[i] *= 0x1p50
		case 3:
			finite[i] *= 0x1p-100
		}
	}
	for row, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)} {
		if at := row*d + d/2; at < len(x) {
			broken[at] = bad
		}
	}
	return [][]float64{finite, broken}
}

func (q *quantizerRun) checkNoise(t *trial) {
	for _, v := range q.space.core() {
		if !v.claims(sdk.ClaimUnbiased) {
			continue
		}
		for _, shape := range matrixShapes { // quantizers that rotate refuse rows of odd length
			sites := q.sites(v, shape...)
			for _, s := range sites {
				if !s.evaluates {
					x := normal(0, shape...)
					t.run(func() { s.instance(t, Reference{}, x).unbiased(x) })
				}
			}
			if len(sites) > 0 {
				break
			}
		}
	}
	if t.check.Tried == 0 {
		t.skipf("optional: unbiased is not claimed")
	}
}

// unbiased compares the mean of Q(x) over many random keys with x, for each element and, projected
// on the signs of x, for the whole matrix. The mean may differ by a few standard errors, plus the
// contribution of events so rare that no draw contained them. So a bias of a fifth of a step is
// detected in a single element, and of a hundredth in the whole matrix. The keys are fixed, so that
// the check is deterministic.
func (in *instance) unbiased(x []float64) {
	const draws, maxDeviations, rareDraws = 400, 6, 20
	values := make([][]float64, draws)
	along := make([]float64, draws) // Σ (Q(x) − x)·sign(x), not 0 if values shrink or grow
	for k := range values {
		values[k] = in.atStep(k).quantize(x).value
		for i, v := range values[k] {
			along[k] += (v - x[i]) * math.Copysign(1, x[i])
		}
	}
	mean, allowed := make([]float64, len(x)), make([]float64, len(x))
	each, step := make([]float64, draws), 0.0
	for i := range x {
		for k := range values {
			each[k] = values[k][i]
		}
		m, deviation := stat.MeanStdDev(each, nil)
		mean[i], allowed[i] = m, maxDeviations*deviation/math.Sqrt(draws)+1e-9*largest(x)
		step = max(step, floats.Max(each)-floats.Min(each))
	}
	for i := range allowed { // the element might leave its level in rare draws
		allowed[i] += step * rareDraws / draws
	}
	in.within(x, "the mean over the noise of Q(x), against x (unbiased is claimed),", mean, x,
		func(i int) float64 { return allowed[i] })
	m, deviation := stat.MeanStdDev(along, nil)
	in.t.begin()
	n := float64(len(x))
	if most := maxDeviations*deviation/math.Sqrt(draws) + 1e-9*largest(x)*n; math.Abs(m) > most {
		in.t.failf(in.at(), "on average over the noise, magnitudes grow by %.3g each, want at most %.3g "+
			"(unbiased is claimed)", m/n, most/n)
	}
}
