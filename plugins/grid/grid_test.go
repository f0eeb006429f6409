package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// settings returns one setting of each kind.
func settings() map[string]map[string]any {
	list := map[string]map[string]any{}
	for _, rounding := range []string{roundNearest, roundFloor} {
		for _, step := range []float64{1, 0.25, 0.3} {
			for _, bits := range []int{0, 3} {
				list[fmt.Sprintf("%s/%v/%d", rounding, step, bits)] = map[string]any{"rounding": rounding,
					"step": step, "bits": bits}
			}
		}
	}
	return list
}

func TestConformance(t *testing.T) {
	for name, given := range settings() {
		t.Run(name, func(t *testing.T) {
			sdktest.Quantizer(t, grid{}, plugintest.With(t, given)...)
		})
	}
}

// TestValues checks ties, both signs, and both ends of a limited grid.
func TestValues(t *testing.T) {
	x := []float64{-2.5, -1.5, -0.75, -0.5, -0.1, 0, 0.5, 0.75, 1.5, 2.5, 9}
	for _, tc := range []struct {
		given map[string]any
		codes []float64
	}{
		{map[string]any{"step": 1.0}, []float64{-2, -2, -1, 0, 0, 0, 0, 1, 2, 2, 9}},
		{map[string]any{"step": 1.0, "rounding": roundFloor},
			[]float64{-3, -2, -1, -1, -1, 0, 0, 0, 1, 2, 9}},
		{map[string]any{"step": 0.5}, []float64{-5, -3, -2, -1, 0, 0, 1, 2, 3, 5, 18}},
		{map[string]any{"step": 0.5, "bits": 3}, []float64{-4, -3, -2, -1, 0, 0, 1, 2, 3, 3, 3}},
		{map[string]any{"step": 1.0, "rounding": roundFloor, "bits": 2},
			[]float64{-2, -2, -1, -1, -1, 0, 0, 0, 1, 1, 1}},
	} {
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			q := m.Quantize(t, grid{}, tc.given, golden.Array{Shape: []int{1, len(x)}, Data: x})
			plugintest.Near(t, fmt.Sprint(tc.given, " codes"), q.Codes, tc.codes, 0)
			plugintest.Near(t, fmt.Sprint(tc.given, " value"), q.Value,
				plugintest.Times(tc.given["step"].(float64), tc.codes), 0)
			ones := make([]float64, len(x))
			for i := range ones {
				ones[i] = 1
			}
			plugintest.Near(t, "gradient", q.Gradient(t, ones), ones, 0)
		})
	}
}

// TestScale checks that the step does not depend on the data.
func TestScale(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, grid{}, map[string]any{"step": 0.3}, plugintest.Normal(1, 4, 8))
		if len(q.Scale) != 1 || math.Abs(q.Scale[0]-0.3) > 1e-7 {
			t.Errorf("the scale is %v, want the step 0.3", q.Scale)
		}
	})
}
