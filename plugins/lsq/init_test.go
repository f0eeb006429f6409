package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
)

// sample has mean ½, mean magnitude 2.5, mean square 7.5 and variance 7.25.
var sample = []float64{-4, 1, 3, 2}

func TestInit(t *testing.T) {
	deviation := math.Sqrt(7.25)
	official := 2 * (microscaling.HalfIntegerFactors[3]*math.Sqrt(7.5) + 1e-8) / 7
	for _, c := range []struct {
		name  string
		role  sdk.Role
		given map[string]any
		want  trained
	}{
		{"lsq weight", sdk.RoleWeight, nil, trained{step: []float64{5 / math.Sqrt(3)}}},
		{"lsq activation", sdk.RoleActivation, nil, trained{step: []float64{5 / math.Sqrt(3)}}},
		{"lsq unsigned activation", sdk.RoleActivation, map[string]any{"levels": levelsUnsigned},
			trained{step: []float64{5 / math.Sqrt(7)}}},
		{"lsq official", sdk.RoleWeight, map[string]any{"form": formOfficial},
			trained{step: []float64{5 / math.Sqrt(3)}}},
		{"lsq stableqat", sdk.RoleWeight, map[string]any{"form": formStableQAT},
			trained{step: []float64{4. / 3}}},
		{"lsq+ weight", sdk.RoleWeight, map[string]any{"variant": variantPlus},
			trained{step: []float64{(0.5 + 3*deviation) / 4}}},
		// The offset is −4 + 4·1.
		{"lsq+ activation", sdk.RoleActivation, map[string]any{"variant": variantPlus},
			trained{[]float64{1}, 0}},
		{"lsq+ unsigned activation", sdk.RoleActivation,
			map[string]any{"variant": variantPlus, "levels": levelsUnsigned}, trained{[]float64{1}, -4}},
		{"lsq+ weight, official", sdk.RoleWeight,
			map[string]any{"variant": variantPlus, "form": formOfficial},
			trained{step: []float64{official}}},
		{"lsq+ activation, official", sdk.RoleActivation,
			map[string]any{"variant": variantPlus, "form": formOfficial},
			trained{[]float64{official}, -4 + 4*official}},
	} {
		given := map[string]any{"bits": 3}
		for k, v := range c.given {
			given[k] = v
		}
		t.Run(c.name, func(t *testing.T) {
			plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
				s := newSubject(t, m, c.role, given, 2, 2)
				got := s.initial(t, sample)
				plugintest.Near(t, "step", got.step, c.want.step, s.rounding())
				if off := math.Abs(got.offset - c.want.offset); !(off <= 4*s.rounding()) {
					t.Errorf("offset is %v, want %v", got.offset, c.want.offset)
				}
			})
		})
	}
}

// TestInitByRows checks that each row gets the step that it would get alone.
func TestInitByRows(t *testing.T) {
	x := plugintest.Normal(3, 5, 33)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, variant := range []string{variantLSQ, variantPlus} {
			for _, form := range forms {
				if form == formStableQAT && variant == variantPlus {
					continue
				}
				given := map[string]any{"variant": variant, "form": form}
				var alone []float64
				one := newSubject(t, m, sdk.RoleWeight, given, 1, 33)
				for i := range 5 {
					alone = append(alone, one.initial(t, x.Data[33*i:33*i+33]).step...)
				}
				given["granularity"] = perRow
				rows := newSubject(t, m, sdk.RoleWeight, given, 5, 33)
				plugintest.Near(t, variant+" "+form, rows.initial(t, x.Data).step, alone, rows.rounding())
			}
		}
	})
}

// TestConstantTensors checks that zeros, and all constants if an offset is learned, get the
// smallest step and are represented exactly.
func TestConstantTensors(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, set := range settings() {
			if set.official {
				continue // has no level zero, and another initial range
			}
			s := newSubject(t, m, set.role, set.given, 6, 33)
			for _, constant := range []float64{0, 1.5} {
				if constant != 0 && !hasOffset(s.site) {
					continue
				}
				x := make([]float64, 6*33)
				for i := range x {
					x[i] = constant
				}
				at, least := s.initial(t, x), smallestStep
				if set.given["form"] == formStableQAT {
					least = smallestStableQAT
				}
				for _, v := range at.step {
					if !(math.Abs(v/least-1) <= 1e-7) {
						t.Errorf("%s: the step of a constant is %v, want %v", set, v, least)
					}
				}
				value, codes, _ := s.quantize(t, x, at)
				plugintest.Near(t, set.String()+": value", value, x, 0)
				plugintest.Near(t, set.String()+": codes", codes, make([]float64, len(x)), 0)
			}
		}
	})
}

// TestInitOfLargeNumbers checks that initial values are finite even if sums and squares overflow.
func TestInitOfLargeNumbers(t *testing.T) {
	x := plugintest.Normal(5, 6, 33)
	for i, v := range x.Data {
		x.Data[i] = math.Copysign(math.MaxFloat32/2, v)
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, set := range settings() {
			if set.given["bits"] != 4 {
				continue
			}
			s := newSubject(t, m, set.role, set.given, 6, 33)
			at := s.initial(t, x.Data)
			for _, v := range append(at.step, at.offset) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s: initial values are %v", set, at)
					break
				}
			}
		}
	})
}
