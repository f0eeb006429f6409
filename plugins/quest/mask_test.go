package main

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestMaskTies checks the trust mask of the paper form exactly at its edges,
// r = qmax + ½ and r = qmin − ½, which rounding to even treats differently.
func TestMaskTies(t *testing.T) {
	r := []float64{1.5, -2.5, 1.5000001, -2.5000002, 0.5, -1.5, 0, 1}
	for _, test := range []struct {
		mask  string
		trust float64
		want  []float64
	}{
		{maskTrust, 1, []float64{1, 1, 0, 0, 1, 1, 1, 1}},
		{maskTrust, 3, []float64{1, 1, 1, 1, 1, 1, 1, 1}},
		{maskTrust, 0.5, []float64{0, 0, 0, 0, 0, 0, 1, 1}},
		{maskTrust, 0, []float64{0, 0, 0, 0, 0, 0, 1, 1}},
		{maskClip, 1, []float64{0, 0, 0, 0, 1, 1, 1, 1}},
		{maskNone, 1, []float64{1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(fmt.Sprint(test.mask, test.trust), func(t *testing.T) {
			plugintest.Near(t, "mask", maskOf(t, r, 2, test.mask, test.trust), test.want, 0)
		})
	}
}

// maskOf evaluates the paper form's mask at given ratios r = z/s of a finite row.
func maskOf(t *testing.T, r []float64, bits int, mask string, trust float64) []float64 {
	t.Helper()
	qmax := float64(int(1)<<(bits-1) - 1)
	l := levels{qmin: -qmax - 1, qmax: qmax}
	site := sdk.Site{Values: plugintest.Settings(t, quest{}.Describe(), map[string]any{"mask": mask, "trust": trust})}
	return plugintest.Oracle().Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		v := in[0]
		return []program.Value{expand(l.mask(v, v.Clip(l.qmin, l.qmax), v.MaxRow().IsFinite(), site), []int{len(r)})}
	}, reference.Floats(r, len(r)))[0]
}
