package sdktest

import "github.com/cage-qat/cage/sdk"

func (q *quantizerRun) checkFixed(t *trial) {
	holds := true
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		once, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		twice, err := in.quantize(once.value)
		if !t.ok(in.at(), err) {
			return
		}
		allowed := func(int) float64 { return exactness * largest(once.value) }
		if q.traits.Idempotent {
			t.within(in.given(x), "Q(Q(x)), against Q(x),", in.shape, twice.value, once.value, allowed)
			t.equal(in.given(x), "codes of Q(Q(x)), against those of Q(x),", in.shape, twice.codes, once.codes)
			return
		}
		for i, v := range twice.value {
			holds = holds && distance(v, once.value[i]) <= allowed(i)
		}
	})
	if !q.traits.Idempotent {
		t.skipf("not claimed; it %s", map[bool]string{true: "holds", false: "does not hold"}[holds])
	}
}

// checkHomogeneous uses powers of two, for which both sides have the same bits, and
// a factor that rounds, in whatever precision the plugin keeps its scale, for which
// an entry on a boundary may go either way. Where a grid puts entries of any tensor on
// a boundary, the rounding of the scale decides about them: that has to be claimed.
func (q *quantizerRun) checkHomogeneous(t *trial) {
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		if !in.Homogeneous {
			return
		}
		e, err := expect(in.Program, in.inputs(x))
		if !t.ok(in.at(), err) {
			return
		}
		base := newAnswer(e.outputs)
		for _, c := range []float64{0x1p10, 0x1p-20, 3.7, 0.013} {
			exact := c == 0x1p10 || c == 0x1p-20
			if q.traits.Ties && !exact {
				continue
			}
			out, err := in.quantize(scaled(c, x))
			if !t.ok(in.at(), err) {
				return
			}
			most, spread := closeness*largest(base.value), e.spread[sdk.OutputValue]
			t.within(in.given(x), "Q(c·x)/c, against Q(x),", in.shape, scaled(1/c, out.value), base.value, func(i int) float64 {
				if exact {
					return 0
				}
				if e.steady(sdk.OutputValue, i) {
					return most
				}
				return 2 * spread[i]
			})
			if exact {
				t.equal(in.given(x), "codes of c·x, against those of x,", in.shape, out.codes, base.codes)
				t.equal(in.given(x), "mask of c·x, against that of x,", in.shape, out.mask, base.mask)
			}
		}
	})
	if t.check.Tried == 0 {
		t.skipf("not promised")
	}
}
