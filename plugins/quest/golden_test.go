package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/tools/plugintest"
)

// single bounds, relative to the largest value of a row, what binary32 may do to
// it: two rotations of at most 128 and a mean of squares, each a few units of
// 6e-8. The worst case is off by 3e-7. The squares of the row of 1e-20 are
// subnormal in binary32, but their sum still keeps 20 bits.
const single = 1e-6

// settings reads a case's settings. Its zero row shows the published code's own
// behaviour, without the guard.
func settings(c golden.Case) map[string]any {
	return map[string]any{
		"form":       c.Params.String("form"),
		"bits":       c.Params.Int("bits"),
		"k_table":    c.Params.StringOr("k_table", tableMatched),
		"rotation":   c.Params.String("mode"),
		"mask":       c.Params.StringOr("mask", maskTrust),
		"trust":      c.Params.Float("trust"),
		"zero_guard": c.ID != "official_4b_zeros",
	}
}

// TestParts compares what scale and codes are made of. The rest of the file is the kit's.
func TestParts(t *testing.T) {
	plugintest.EachCase(t, "quest", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		q := m.Quantize(t, quest{}, settings(c), c.Inputs.Array("x"))
		m.Close(c.Expected, "zhat", plugintest.Times(q.Scale[0], q.Codes), single)
		checkScale(m, c, q.Scale[0])
	})
}

// checkScale compares the scale and what it is made of. The official form's
// golden scale is the largest level, that of the plugin half a step.
func checkScale(m plugintest.Bench, c golden.Case, scale float64) {
	bits, k := c.Params.Int("bits"), c.Params.Float("k")
	if c.Params.String("form") == formPaper {
		m.Close(c.Expected, "scale", []float64{scale}, single)
		m.Close(c.Expected, "sigma", []float64{scale * (math.Ldexp(1, bits-1) - 1) / k}, single)
		return
	}
	amplitude := scale * (math.Ldexp(1, bits) - 1)
	m.Close(c.Expected, "scale", []float64{amplitude}, single)
	m.Close(c.Expected, "step", []float64{2 * scale}, single)
	if c.ID != "official_4b_zeros" { // a difference of equal numbers
		m.Close(c.Expected, "sigma", []float64{(amplitude - c.Params.Float("eps")) / k}, single)
	}
}

// TestHandChecks repeats two rows that can be worked out on paper.
func TestHandChecks(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{3, -1, 1, 1}}
	tests := []struct {
		form               string
		value, codes, mask []float64
	}{
		{formPaper, []float64{1.815856541, -1.815856541, 1.815856541, 1.815856541}, []float64{1, -1, 1, 1}, []float64{0, 1, 1, 1}},
		{formOfficial, []float64{2.586877855, -0.862292618, 0.862292618, 0.862292618}, []float64{3, -1, 1, 1}, []float64{1, 1, 1, 1}},
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, test := range tests {
			q := m.Quantize(t, quest{}, map[string]any{"form": test.form, "bits": 2, "rotation": "none"}, x)
			plugintest.Near(t, test.form+" value", q.Value, test.value, 1e-6)
			plugintest.Near(t, test.form+" codes", q.Codes, test.codes, 0)
			plugintest.Near(t, test.form+" mask", q.Mask, test.mask, 0)
		}
	})
}

func TestBlockTable(t *testing.T) {
	golden.Load(t, "testdata/hadamard.json").RunList(t, "block_table", func(t *testing.T, o golden.Object) {
		d := o.Int("d")
		if got, err := rotationBlock("auto", d); err != nil || got != o.Int("auto") {
			t.Errorf("auto for %d: %d, %v, want %d", d, got, err, o.Int("auto"))
		}
		if got, err := rotationBlock("full", d); (err == nil) != o.Bool("full_ok") || (err == nil && got != d) {
			t.Errorf("full for %d: %d, %v", d, got, err)
		}
		if got, err := rotationBlock("128", d); (err == nil) != o.Bool("official_ok") || (err == nil && got != 128) {
			t.Errorf("128 for %d: %d, %v", d, got, err)
		}
	})
}
