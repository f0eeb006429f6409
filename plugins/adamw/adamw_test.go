package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, adamw{}, plugintest.Kit(t, "adamw")...)
}

// TestFirstStep checks that the corrected moments of the first gradient are g and g², so that u =
// g/(|g| + ε) for all β. In binary32 this holds only if 1 − βᵗ keeps its digits.
func TestFirstStep(t *testing.T) {
	g := plugintest.Normal(1, 1, 1, 64)
	const eps = 1e-3
	want := make([]float64, len(g.Data))
	for i, v := range g.Data {
		want[i] = -v / (math.Abs(v) + eps)
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, beta := range [][2]float64{{0.9, 0.95}, {0, 0}, {0.5, 0.999}, {0.999999, 0.999999}} {
			given := map[string]any{"beta1": beta[0], "beta2": beta[1], "eps": eps}
			got := m.Train(t, adamw{}, given, plugintest.Matrix(1, 64), make([]float64, 64)).Steps(t, g, 1)
			// In binary32, 1 − β in the moments is exact to 6e-8.
			plugintest.Near(t, fmt.Sprint("u for β = ", beta), got, want, 5e-7)
		}
	})
}

// TestConstantGradient checks that with a constant gradient the corrected moments stay g and g².
func TestConstantGradient(t *testing.T) {
	const steps = 200
	g := golden.Array{Shape: []int{steps, 1, 2}, Data: make([]float64, 2*steps)}
	want := make([]float64, 2*steps)
	for i := range steps {
		g.Data[2*i], g.Data[2*i+1] = 0.25, -3
		want[2*i], want[2*i+1] = -float64(i+1), float64(i+1)
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		run := m.Train(t, adamw{}, map[string]any{"beta2": 0.999}, plugintest.Matrix(1, 2),
			make([]float64, 2))
		var got []float64
		for i := range steps {
			run.Update(t, g.Row(i).Data, 1)
			got = append(got, run.X()...)
		}
		// Each of the 200 steps of 1 is exact to a few units of 6e-8; ε = 1e-8 reduces each step of the
		// smaller gradient by 4e-8.
		plugintest.Near(t, "x", got, want, 1e-6)
	})
}
