package main

import (
	"testing"

	"github.com/cage-qat/cage/tools/plugintest"
)

// TestScaleType: with scale_dtype the scales are numbers of that type, and values still
// codes times scales. In the official form the step and 7½ steps are numbers of f16; the
// scale is half a step.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(5, 16, 64)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for _, form := range []string{formPaper, formOfficial, formTernary} {
				q := m.Quantize(t, quest{}, map[string]any{"scale_dtype": dtype, "form": form, "rotation": rotateNone}, x)
				if form == formOfficial && dtype == "f16" {
					plugintest.ShortScales(t, dtype, q.Scale, 2, 15)
				} else {
					plugintest.ShortScales(t, dtype, q.Scale, 1)
				}
				for i, v := range q.Value {
					if want := q.Codes[i] * q.Scale[i/64]; v != want {
						t.Fatalf("%s, %s: value %v at %d, want %v", dtype, form, v, i, want)
					}
				}
			}
		}
	})
}
