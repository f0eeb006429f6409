package main

import (
	"testing"

	"github.com/cage-qat/cage/tools/plugintest"
)

// TestScaleType: with scale_dtype the scales are numbers of that type, and values still
// codes times scales. On the grid of half-integers the step and 7½ steps are numbers of
// f16; the scale is half a step.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(3, 16, 64)
	for i := range x.Data[:64] {
		x.Data[i] *= 1e-9 // too small for half floats
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for _, grid := range []string{gridSymmetric, gridFull, gridCentred} {
				q := m.Quantize(t, absmax{}, map[string]any{"scale_dtype": dtype, "grid": grid, "granularity": perGroup, "group": 32}, x)
				if grid == gridCentred && dtype == "f16" {
					plugintest.ShortScales(t, dtype, q.Scale, 2, 15)
				} else {
					plugintest.ShortScales(t, dtype, q.Scale, 1)
				}
				for i, v := range q.Value {
					if want := q.Codes[i] * q.Scale[i/32]; v != want {
						t.Fatalf("%s, %s: value %v at %d, want %v", dtype, grid, v, i, want)
					}
				}
			}
		}
	})
}
