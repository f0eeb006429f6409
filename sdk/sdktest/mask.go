package sdktest

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// maskWidth is the length of the row for which masks are compared with errors: odd, so that it is
// not rotated, and long enough to have entries on most levels.
const maskWidth = 513

// spreadRow is a row of normal numbers, of which every fourth is one of evenly spaced numbers up to
// six deviations.
func spreadRow() []float64 {
	x := normal(23, 1, maskWidth)
	for i := 0; i < len(x); i += 4 {
		_, part := math.Modf(float64(i/4) * math.Phi) // well spread in every stretch of the row
		x[i] = float64(float32(6 * (2*part - 1)))
	}
	return x
}

// checkMask: an entry that passes its gradient lies at its level, not beyond the end of the grid. A
// mask that stops nothing at all is a choice; one that stops some entries and passes others that
// are clipped has a threshold that does not fit its grid.
func (q *quantizerRun) checkMask(t *trial) {
	if v := q.space.singles[0]; v.claims(sdk.ClaimAnyGradient) || v.claims(sdk.ClaimAnyRounding) {
		t.skipf("any_gradient or any_rounding is claimed")
		return
	}
	for _, s := range q.sites(q.space.singles[0], 1, maskWidth) {
		if len(s.settings) > 0 { // a person may choose a mask for its own sake
			continue
		}
		t.run(func() {
			x := spreadRow()
			in := s.instance(t, Oracle{}, x)
			out := in.quantize(x)
			if len(out.mask) == 0 || !slices.Contains(out.mask, 0) {
				return
			}
			group := in.influence(x, maskWidth/2)
			if in.hasMemory() { // all share it
				group = slices.Repeat([]bool{true}, len(x))
			}
			t.announce()
			in.compareMask(x, out, hull(group, maskWidth))
		})
	}
}

func (in *instance) compareMask(x []float64, out quantization, group []bool) {
	var levels []float64
	for i, v := range out.value {
		if group[i] {
			levels = append(levels, v)
		}
	}
	slices.Sort(levels)
	levels = slices.CompactFunc(levels, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 })
	worst, most := -1, 1.0
	for i, v := range out.value {
		if !group[i] || out.mask[i] == 0 {
			continue
		}
		if off := math.Abs(v-x[i]) / (halfGap(levels, v) * (1 + 1e-6)); off > most {
			worst, most = i, off
		}
	}
	if worst >= 0 {
		f := in.given(x).element("the mask passes an entry that is clipped: it is farther from its value than half a step", worst, in.shape, out.value)
		in.t.add(f)
	}
}

func halfGap(levels []float64, v float64) float64 {
	gap := 0.0
	for i, l := range levels {
		if math.Abs(l-v) > 1e-9 {
			continue
		}
		if i > 0 {
			gap = l - levels[i-1]
		}
		if i+1 < len(levels) {
			gap = max(gap, levels[i+1]-l)
		}
	}
	return gap / 2
}

// bitsParameter is the name by which a parameter says how many bits a code has.
const bitsParameter = "bits"

// checkCount counts the codes. A quantizer whose parameter bits is an integer cannot have more than
// 2^bits of them.
func (q *quantizerRun) checkCount(t *trial) {
	i := slices.IndexFunc(q.about.Parameters, func(p sdk.Parameter) bool { return p.Name == bitsParameter && p.Type == sdk.TypeInt })
	if i < 0 {
		t.skipf("no parameter bits")
		return
	}
	for _, v := range q.space.singles {
		if _, ok := v.changed[bitsParameter]; len(v.changed) > 1 || len(v.changed) == 1 && !ok {
			continue // another parameter may make bits irrelevant
		}
		for _, s := range q.sites(v, 1, maskWidth) {
			t.run(func() {
				x := spreadRow()
				codes := s.instance(t, Oracle{}, x).quantize(x).codes
				if codes == nil {
					return
				}
				bits := v.values.Int(bitsParameter)
				if bits < 1 {
					return // such as 0 for as many as there are
				}
				t.announce()
				if n := len(slices.Compact(slices.Sorted(slices.Values(codes)))); n > 1<<bits {
					t.failf(s.on(Oracle{}), "there are %d codes, from %v to %v, but %d bits hold only %d", n, slices.Min(codes), slices.Max(codes), bits, 1<<bits)
				}
			})
		}
	}
}
