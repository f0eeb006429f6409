package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance also compares with results of the authors' code (testdata/paretoq.py).
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, paretoq{},
		plugintest.With(t, nil, sdktest.GoldenFile(t, "testdata/paretoq.json"))...)
}

// at quantizes rows with the given α or, without one, with the initial α, and checks that codes and
// scales unpack to the same value.
func at(
	t *testing.T, m plugintest.Bench, role sdk.Role, given map[string]any, x []float64, rows int,
	alpha ...float64,
) (out map[string]reference.Tensor, used []float64) {
	t.Helper()
	site := sdk.Site{Role: role, Name: "site", Shape: []int{rows, len(x) / rows},
		Values: plugintest.Settings(t, paretoq{}.Describe(), given)}
	built, err := sdk.BuildQuantizer(paretoq{}, site)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{spec.InputX: reference.Floats(x, site.Shape...)}
	trained := spec.TrainedPrefix + trainedAlpha
	start := m.Run(t, built.Init, in)[trained]
	if len(alpha) > 0 {
		start = reference.Floats(alpha, start.Type.Shape...)
	}
	in[trained] = start
	out = m.Run(t, built.Program, in)
	packed := map[string]reference.Tensor{spec.OutputCodes: out[spec.OutputCodes],
		spec.OutputScale: out[spec.OutputScale]}
	plugintest.Near(t, "unpacked", m.Run(t, built.Unpack, packed)[spec.OutputValue].Float64s(),
		out[spec.OutputValue].Float64s(), 0)
	return out, start.Float64s()
}

// TestInitial checks that a row of zeros has the smallest α, that α of a huge row is finite, and
// that an activation has one α.
func TestInitial(t *testing.T) {
	const huge = math.MaxFloat32 / 2
	x := []float64{-3, 1, 0, 2, 0, 0, 0, 0, huge, -huge, huge, huge}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for bits, want := range [][]float64{{3, huge}, {1.5, huge}, {3, huge}, {1, huge / 3},
			{3. / 7, huge / 7}} {
			given := map[string]any{"bits": bits}
			what := fmt.Sprintf("α of %d bits", bits)
			_, alpha := at(t, m, sdk.RoleWeight, given, x, 3)
			plugintest.Near(t, what, alpha[:1], want[:1], 1e-6)
			plugintest.Near(t, what+", zeros", alpha[1:2], []float64{smallestAlpha}, 0)
			plugintest.Near(t, what+", huge", alpha[2:], want[1:], 1e-6)
			_, alpha = at(t, m, sdk.RoleActivation, given, x[:8], 2)
			if bits == 1 {
				want[0] = 0.75
			}
			plugintest.Near(t, what+", an activation", alpha, want[:1], 1e-6)
		}
	})
}

// TestGrids checks codes, levels and masks for numbers in units of α. Zero is rounded to the level
// above it if it is not a level.
func TestGrids(t *testing.T) {
	x := []float64{-9, -1, -0.995, -0.6, -0.3, 0, 0.3, 0.6, 0.995, 1, 9}
	half := []float64{0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0}
	whole := []float64{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}
	for _, tt := range []struct {
		bits  int
		clip  float64
		codes []float64
		level float64 // of the code 1
		mask  []float64
	}{
		{0, 0.99, []float64{-1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 1}, 2. / 3, half},
		{0, 1, []float64{-1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 1}, 2. / 3, whole},
		{1, 0.99, []float64{-1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1}, 1, whole},
		{2, 0.99, []float64{-3, -3, -3, -3, -1, 1, 1, 3, 3, 3, 3}, 0.25, half},
		{2, 1, []float64{-3, -3, -3, -3, -1, 1, 1, 3, 3, 3, 3}, 0.25, whole},
		{3, 0.99, []float64{-4, -1, -1, -1, 0, 0, 0, 1, 1, 1, 3}, 1, whole},
		{4, 0.99, []float64{-8, -1, -1, -1, 0, 0, 0, 1, 1, 1, 7}, 1, whole},
	} {
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			out, _ := at(t, m, sdk.RoleWeight, map[string]any{"bits": tt.bits, "clip": tt.clip},
				plugintest.Times(0.5, x), 1, 0.5)
			what := fmt.Sprintf("%d bits, clip %v: ", tt.bits, tt.clip)
			plugintest.Near(t, what+"codes", out[spec.OutputCodes].Float64s(), tt.codes, 0)
			plugintest.Near(t, what+"value", out[spec.OutputValue].Float64s(),
				plugintest.Times(0.5*tt.level, tt.codes), 1e-7)
			plugintest.Near(t, what+"mask", out[spec.OutputMask].Float64s(), tt.mask, 0)
		})
	}
}

// TestRows checks that a non-finite element makes its row of a weight, or the whole activation,
// NaN.
func TestRows(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for bits := range 5 {
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				x, nan := []float64{1, bad, -1, 1, -1, 1}, math.NaN()
				out, _ := at(t, m, sdk.RoleWeight, map[string]any{"bits": bits}, x, 2, 2, 2)
				alone, _ := at(t, m, sdk.RoleWeight, map[string]any{"bits": bits}, x[3:], 1, 2)
				want := append([]float64{nan, nan, nan}, alone[spec.OutputValue].Float64s()...)
				plugintest.Near(t, fmt.Sprintf("%d bits, rows with %v", bits, bad),
					out[spec.OutputValue].Float64s(), want, 0)
				out, _ = at(t, m, sdk.RoleActivation, map[string]any{"bits": bits}, x, 2, 2)
				plugintest.Near(t, fmt.Sprintf("%d bits, tokens with %v", bits, bad),
					out[spec.OutputValue].Float64s(), []float64{nan, nan, nan, nan, nan, nan}, 0)
				plugintest.Near(t, "codes", out[spec.OutputCodes].Float64s(), make([]float64, 6), 0)
			}
		}
	})
}

// TestScaleType checks that with scale_dtype the scales are numbers of that type.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(3, 4, 32).Data
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for bits := range 5 {
			for _, dtype := range []string{"bf16", "f16"} {
				out, _ := at(t, m, sdk.RoleWeight, map[string]any{"bits": bits, "scale_dtype": dtype}, x, 4)
				plugintest.ShortScales(t, dtype, out[spec.OutputScale].Float64s(), 1)
			}
		}
	})
}
