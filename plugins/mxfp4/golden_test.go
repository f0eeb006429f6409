package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/fpmodel"
	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/tools/plugintest"
)

// single bounds, relative to the largest value of a row, what binary32 may do to
// it. Without rotation and the factor 4/3 everything but the scale of the quest
// rule is exact; two rotations of 32 are a few units of 6e-8.
const single = 1e-6

// TestDecoded: codes and scales are those of ẑ, the rotated tensor. The rest of the file
// is the kit's.
func TestDecoded(t *testing.T) {
	plugintest.EachCase(t, "mxfp4", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		given := map[string]any{"scale_rule": c.Params.String("rule"), "ties": c.Params.String("ties")}
		if c.Params.Int("hblock") > 0 {
			given["rotation"] = c.Params.String("hblock")
		}
		x := c.Inputs.Array("x")
		if !m.Double() && c.ID == "just_below_power_ocp" {
			return // in binary32 its 3.9999999 is 4, the maximum of another case
		}
		q := m.Quantize(t, mxfp4{}, given, x)
		m.Close(c.Expected, "zhat", fpmodel.Decode(q.Codes, q.Scale, x.Shape[len(x.Shape)-1], block), single)
	})
}

// TestLevels checks that the file and the tests mean the same format.
func TestLevels(t *testing.T) {
	levels := golden.Load(t, "testdata/mxfp4.json").Top(t).Array("e2m1_values").Data
	plugintest.Near(t, "e2m1_values", fpmodel.Magnitudes[:], levels, 0)
	if largest := levels[len(levels)-1]; largest != microscaling.LargestE2M1 {
		t.Errorf("the largest level is %v", largest)
	}
}

// TestHandChecks repeats a block that can be worked out on paper.
func TestHandChecks(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{3, -1.3, 0.1, 0.7}}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, mxfp4{}, nil, x)
		plugintest.Near(t, "ocp", q.Value, []float64{3, -1.5, 0, 0.75}, 0)
		plugintest.Near(t, "ocp codes", q.Codes, []float64{7, 13, 0, 3}, 0)
		q = m.Quantize(t, mxfp4{}, map[string]any{"scale_rule": ruleAbsMax34}, x)
		plugintest.Near(t, "absmax34", q.Value, []float64{8. / 3, -4. / 3, 0, 2. / 3}, 1e-7)
	})
}
