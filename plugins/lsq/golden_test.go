package main

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestGolden covers value, gradients and, in the case of that name, the initial
// step. The file's unsigned case is an activation with an offset.
func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/baselines.json")
	const single = 5e-7 // of values and of dx: a quotient, a product, and a sum of two
	ran := 0
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			if !strings.HasPrefix(c.ID, "lsq") {
				t.Skip("another method's")
			}
			ran++
			role, given := sdk.RoleWeight, map[string]any{"bits": 4}
			if c.Params.Has("offset") {
				role, given = sdk.RoleActivation, map[string]any{"bits": 4, "variant": variantPlus, "levels": levelsUnsigned}
			}
			x, dy := c.Inputs.Array("x"), c.Inputs.Array("grad_out").Data
			s := newSubject(t, m, role, given, x.Shape...)
			if g, _ := newGrid(s.site); g.qn != c.Params.Float("qn") || g.qp != c.Params.Float("qp") ||
				math.Abs(g.gradientScale-c.Params.Float("grad_scale")) > 1e-15 {
				t.Errorf("the grid is %+v, want that of %v", g, c.Params.Map())
			}
			at := trained{[]float64{c.Params.Float("step")}, c.Params.FloatOr("offset", 0)}
			value, _, _ := s.quantize(t, x.Data, at)
			m.Close(c.Expected, "dequant", value, single)
			dx, d := s.gradient(t, x.Data, at, dy)
			m.Close(c.Expected, "grad_input", dx, single)
			f := formula{qn: c.Params.Float("qn"), qp: c.Params.Float("qp"), gradientScale: c.Params.Float("grad_scale")}
			rounding := f.roundings(x.Data, at, len(x.Data), dy, unit(m))
			within(t, "grad_step", d.step[0], c.Expected.Float("grad_step"), rounding.step[0])
			if hasOffset(s.site) {
				within(t, "grad_offset", d.offset, c.Expected.Float("grad_offset"), rounding.offset)
			}
			if c.ID == "lsq_init" {
				plugintest.Near(t, "initial step", s.initial(t, x.Data).step, at.step, s.rounding())
			}
		})
	})
	if ran != 2*4 {
		t.Errorf("%d cases ran, want 4 on two machines", ran)
	}
}
