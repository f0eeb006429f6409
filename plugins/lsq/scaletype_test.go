package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestScaleType: with scale_dtype the step that is used is a number of that type, however
// long the trained one is, and values are codes times it.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(7, 4, 32)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for form, factors := range map[string][]float64{formPaper: {1}, formOfficial: {2, 15}} {
				if dtype == "bf16" {
					factors = []float64{1}
				}
				s := newSubject(t, m, sdk.RoleWeight, map[string]any{"scale_dtype": dtype, "form": form, "granularity": perRow}, x.Shape...)
				out := m.Run(t, s.built.Program, s.inputs(x.Data, trained{step: []float64{1.0 / 3, 0.1, 1e-5, 0.7}}))
				scale, codes, value := out[sdk.OutputScale].Float64s(), out[sdk.OutputCodes].Float64s(), out[sdk.OutputValue].Float64s()
				plugintest.ShortScales(t, dtype, scale, factors...)
				for i, v := range value {
					if want := codes[i] * scale[i/32]; v != want {
						t.Fatalf("%s, %s: value %v at %d, want %v", dtype, form, v, i, want)
					}
				}
			}
		}
	})
}
