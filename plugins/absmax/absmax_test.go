package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestConformance tries each grid with each granularity, beside the kit's combinations; by default
// half of the pairs, which include each grid and each granularity.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, absmax{}, plugintest.Kit(t, "absmax")...)
	if testing.Short() {
		return // the rest covers other settings
	}
	for g, grid := range []string{gridSymmetric, gridFull, gridCentred, gridGPTQ, gridSigned,
		gridFit, gridMinimum, gridMLX, gridAffine, gridZero, gridZeroFit} {
		for i, granularity := range []string{perTensor, perRow, perGroup} {
			if g > 3 && grid != gridFit && granularity == perTensor {
				continue // is refused
			}
			if !testlevel.All() && (g+i)%2 > 0 {
				continue
			}
			given := map[string]any{"grid": grid, "granularity": granularity, "group": 16, "bits": 3}
			t.Run(grid+"/"+granularity,
				func(t *testing.T) { sdktest.Quantizer(t, absmax{}, plugintest.Fixed(t, absmax{}, given)...) })
		}
	}
	for name, given := range map[string]map[string]any{
		"1 bit": {"grid": gridCentred, "bits": 1}, "sign": {"grid": gridSign, "bits": 1},
		"llama.cpp": {"rounding": roundLlama, "bits": 8, "granularity": perGroup, "group": 32},
		"Q1_0": {"grid": gridSign, "bits": 1, "granularity": perGroup, "group": 128,
			"scale_dtype": "f16"},
	} {
		t.Run(name, func(t *testing.T) {
			sdktest.Quantizer(t, absmax{}, plugintest.Fixed(t, absmax{}, given)...)
		})
	}
}

// TestTinyScales checks groups whose scale is not a normal binary32 number: they are quantized to
// zero, and no code leaves the grid.
func TestTinyScales(t *testing.T) {
	x := golden.Array{Shape: []int{3, 3}, Data: []float64{
		10 * 0x1p-149, -3 * 0x1p-149, 0x1p-149, // scale below every binary32 number
		7 * 0x1p-127, 0x1p-126, 0, // scale just subnormal
		7 * 0x1p-126, 0x1p-126, -4 * 0x1p-126, // scale just normal
	}}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, absmax{}, nil, x)
		plugintest.Near(t, "codes", q.Codes, []float64{0, 0, 0, 0, 0, 0, 7, 1, -4}, 0)
		plugintest.Near(t, "value", q.Value, append(make([]float64, 6), x.Data[6:]...), 0)
	})
}

// TestRange checks that codes stay on the grid at each bit width, even if the maximum is on a tie
// of the full grid.
func TestRange(t *testing.T) {
	x := plugintest.Normal(1, 16, 33)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for bits := 2; bits <= 8; bits++ {
			top := math.Ldexp(1, bits-1) - 1
			for grid, r := range map[string][2]float64{
				gridSymmetric: {-top, top}, gridFull: {-top - 1, top}, gridCentred: {-2*top - 1, 2*top + 1},
			} {
				q := m.Quantize(t, absmax{}, map[string]any{"grid": grid, "bits": bits}, x)
				for i, c := range q.Codes {
					if !(c >= r[0] && c <= r[1]) {
						t.Fatalf("%s, %d bits: code %v at %d, outside %v", grid, bits, c, i, r)
					}
					if off := math.Abs(q.Value[i] - c*q.Scale[i/33]); !(off <= 1e-6) {
						t.Fatalf("%s, %d bits: value %v at %d, scale·code = %v", grid, bits, q.Value[i], i,
							c*q.Scale[i/33])
					}
				}
			}
		}
	})
}

func TestTooFewBits(t *testing.T) {
	for _, grid := range []string{gridSymmetric, gridFull, gridGPTQ} {
		plugintest.RefusesWeight(t, absmax{}, map[string]any{"bits": 1, "grid": grid},
			fmt.Sprintf("the %s grid needs at least 2 bits", grid), 2, 4)
	}
}

// TestShortGroup checks that grids whose scale is no maximum refuse groups that leave a shorter
// one.
func TestShortGroup(t *testing.T) {
	for _, grid := range []string{gridSign, gridMinimum, gridMLX, gridAffine} {
		bits := 4
		if grid == gridSign {
			bits = 1
		}
		plugintest.RefusesWeight(t, absmax{}, map[string]any{"bits": bits, "grid": grid,
			"granularity": perGroup, "group": 4}, "needs a group that divides a row of 6 numbers", 2, 6)
	}
}

// TestScaleType checks that with scale_dtype the scales are numbers of that type, and values are
// still codes times scales. On the grid of half-integers, the step and 7½ steps are numbers of f16;
// the scale is half a step.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(3, 16, 64)
	for i := range x.Data[:64] {
		x.Data[i] *= 1e-9 // too small for half floats
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for _, grid := range []string{gridSymmetric, gridFull, gridCentred} {
				q := m.Quantize(t, absmax{},
					map[string]any{"scale_dtype": dtype, "grid": grid, "granularity": perGroup, "group": 32}, x)
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

// TestServers compares values with those of the programs that serve a type, to the bit, and checks
// that values on the grid stay, but for the rules of compressed-tensors and MLX: with all codes on
// a symmetric grid, the largest number has half a step more than its code, and the largest code of
// MLX's rule may be one less than the last.
func TestServers(t *testing.T) {
	m := plugintest.CPU(t)
	golden.Load(t, "testdata/servers.json").Run(t, func(t *testing.T, c golden.Case) {
		given := map[string]any{}
		for _, key := range c.Params.Keys() {
			if key == "bits" || key == "group" {
				given[key] = c.Params.Int(key)
			} else {
				given[key] = c.Params.String(key)
			}
		}
		x, want := c.Inputs.Array("x"), c.Expected.Array("value")
		got := m.Quantize(t, absmax{}, given, x)
		equal(t, "Q(x)", x, got.Value, want.Data)
		if given["grid"] == gridMLX {
			given["grid"] = gridAffine // which keeps what mx.quantize makes
			for i := 0; i < len(want.Data); i += want.Shape[1] {
				if row := want.Data[i:][:want.Shape[1]]; slices.Max(row) < 1e-5 { // but for its least scale
					clear(row)
				}
			}
		}
		if given["grid"] == gridZero {
			given["grid"] = gridZeroFit
			equal(t, "Q(x) of "+gridZeroFit, x, m.Quantize(t, absmax{}, given, x).Value, want.Data)
		}
		if given["grid"] != gridFull {
			equal(t, "Q(Q(x))", want, m.Quantize(t, absmax{}, given, want).Value, want.Data)
		}
	})
}

// equal compares numbers with those of float32 that nine digits tell; −0 equals 0.
func equal(t *testing.T, what string, x golden.Array, got, want []float64) {
	t.Helper()
	wrong := 0
	for i := range got {
		if want := float64(float32(want[i])); got[i] != want {
			if wrong++; wrong < 4 {
				t.Errorf("%s is %v in block %d, want %v, for %v", what, got[i], i/x.Shape[1], want,
					x.Data[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d numbers differ", what, wrong, len(got))
	}
}
