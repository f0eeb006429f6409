package sdktest_test

import (
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// twenty are typical mistakes of authors, each in an otherwise correct plugin without claims.
// before is true if the kit found the mistake before it had checks of scopes, masks, counts of
// codes, corrections, decay and names.
var twenty = []struct {
	mistake string
	q       sdk.Quantizer
	o       sdk.Optimizer
	by      string // the check meant for it
	before  bool
}{
	{mistake: "rounds toward zero", q: broken(func(q *rows) {
		q.round = func(r program.Value) program.Value { return r.Abs().Floor().Mul(r.Sign()) }
	}), by: "nearest", before: true},
	{mistake: "clips one code too early", q: broken(func(q *rows) { q.short = 1 }), by: "nearest",
		before: true},
	{mistake: "clips one code too early, with a scale that clips", q: clipping{short: 1}, by: "mask"},
	{mistake: "takes the scale along the wrong axis", q: broken(byColumn), by: "scale scope"},
	{mistake: "takes the scale of all tokens", q: broken(byTensor), by: "scale scope"},
	{mistake: "doubles the threshold of the mask", q: clipping{threshold: 2}, by: "mask"},
	{mistake: "inverts the mask", q: broken(func(q *rows) { q.mask = program.Value.Not }),
		by: "gradient size", before: true},
	{mistake: "has a code too many", q: broken(func(q *rows) {
		q.short, q.scale = -1, func(s, _ program.Value) program.Value { return s.Scale(0.5) }
	}), by: "count of codes"},
	{mistake: "divides by the scale of a row of zeros", q: broken(func(q *rows) { q.zero = 0 }),
		by: "zeros", before: true},
	{mistake: "lets an infinity end on the grid", q: broken(func(q *rows) {
		q.finite = func(x program.Value) program.Value { m := x.Abs().MaxRow(); return m.Eq(m) }
	}), by: "non-finite", before: true},
	{mistake: "adds a constant to a scale and promises homogeneity", q: broken(func(q *rows) {
		q.scale = func(s, _ program.Value) program.Value { return s.Shift(1e-3) }
	}), by: "homogeneous", before: true},
	{mistake: "differentiates the rounding",
		q: broken(func(q *rows) { q.surrogate = program.Value.Round }), by: "gradient size",
		before: true},
	{mistake: "trains a step with the wrong sign",
		q: learned{step: func(s program.Value) program.Value {
			return s.StopGradient().Scale(2).Sub(s)
		}}, by: "learning", before: true},
	{mistake: "unpacks with an offset",
		q: packed{good(), func(codes, scale program.Value) program.Value {
			return codes.Convert(program.Float).Shift(1).Mul(scale)
		}}, by: "codes", before: true},
	{mistake: "corrects averages for one update too many", o: corrected{shift: 1}, by: "correction"},
	{mistake: "adds weight decay to u",
		o: momentum{u: func(in sdk.UpdateInput, m program.Value) program.Value {
			return m.Add(in.X.Scale(0.01))
		}}, by: "decay"},
	{mistake: "treats tensors by their names", o: named{}, by: "selection"},
	{mistake: "returns the old state",
		o: momentum{next: func(in sdk.UpdateInput, _ program.Value) program.Value {
			return in.State["m"]
		}}, by: "state", before: true},
	{mistake: "climbs", o: momentum{
		u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Neg() }}, by: "parabola",
		before: true},
	{mistake: "divides by a gradient of zero",
		o:  momentum{u: func(_ sdk.UpdateInput, m program.Value) program.Value { return m.Div(m.Abs()) }},
		by: "zero gradient", before: true},
}

// TestTwentyMistakes checks that the kit finds all of them.
func TestTwentyMistakes(t *testing.T) {
	testlevel.Long(t, "TestQuantizerMutants has most of them, too")
	before := 0
	for _, c := range twenty {
		if c.before {
			before++
		}
		t.Run(c.mistake, func(t *testing.T) {
			if c.q != nil {
				fails(t, sdktest.SomeOfQuantizer(c.q, []string{c.by}), []string{c.by})
			} else {
				fails(t, sdktest.SomeOfOptimizer(c.o, []string{c.by}), []string{c.by})
			}
		})
	}
	t.Logf("%d of %d, %d before", len(twenty), len(twenty), before)
}
