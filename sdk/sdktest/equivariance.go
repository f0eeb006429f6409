package sdktest

import (
	"github.com/cage-qat/cage/sdk"
)

// checkFixed quantizes twice, to see whether the second time changes anything.
func (q *quantizerRun) checkFixed(t *trial) {
	holds, some := true, false
	q.onOracle(t, func(in *instance, x []float64) {
		once := in.quantize(x)
		twice := in.quantize(once.value)
		allowed := exactness * largest(once.value)
		if q.traits.Idempotent {
			in.within(x, "Q(Q(x)), against Q(x),", twice.value, once.value, upTo(allowed))
			in.equal(x, "codes of Q(Q(x)), against those of Q(x),", twice.codes, once.codes)
			return
		}
		some = true
		for i, v := range twice.value {
			holds = holds && distance(v, once.value[i]) <= allowed
		}
	})
	switch {
	case q.traits.Idempotent:
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
// decides where they go; such a grid has to be claimed (see [Traits]).
func (q *quantizerRun) checkHomogeneous(t *trial) {
	q.onOracle(t, func(in *instance, x []float64) {
		if !in.Homogeneous {
			return
		}
		e, err := expect(in.Program, in.inputs(x))
		t.must(in.at(), err)
		base, spread := newQuantization(e.outputs), e.spread[sdk.OutputValue]
		for _, c := range []float64{0x1p10, 0x1p-20} {
			out := in.quantize(scaled(c, x))
			in.equal(x, "Q(c·x)/c, against Q(x),", scaled(1/c, out.value), base.value)
			in.equal(x, "codes of c·x, against those of x,", out.codes, base.codes)
			in.equal(x, "mask of c·x, against that of x,", out.mask, base.mask)
		}
		if q.traits.Ties {
			return
		}
		for _, c := range []float64{3.7, 0.013} {
			out := in.quantize(scaled(c, x))
			in.within(x, "Q(c·x)/c, against Q(x),", scaled(1/c, out.value), base.value, func(i int) float64 {
				if e.steady(sdk.OutputValue, i) {
					return closeness * largest(base.value)
				}
				return 2 * spread[i]
			})
		}
	})
	t.skipUntried("not promised")
}
