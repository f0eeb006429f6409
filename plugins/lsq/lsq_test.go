package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance covers each form with each granularity, beside the kit's combinations.
// testdata/stableqat.json has the values of StableQAT's published code, with both surrogates.
func TestConformance(t *testing.T) {
	straight := sdktest.With(map[string]any{"surrogate": surrogateStraight})
	sdktest.Quantizer(t, lsq{}, plugintest.Kit(t, "kit", straight,
		sdktest.GoldenFile(t, "testdata/official.json"))...)
	sine := map[string]any{"surrogate": surrogateSine, "form": formStableQAT, "variant": variantLSQ,
		"levels": levelsSigned, "granularity": perRow}
	t.Run(surrogateSine, func(t *testing.T) {
		sdktest.Quantizer(t, lsq{},
			plugintest.With(t, sine, sdktest.GoldenFile(t, "testdata/stableqat.json"))...)
	})
	if testing.Short() {
		return // the rest covers other settings
	}
	for _, form := range forms {
		for _, granularity := range []string{perTensor, perRow} {
			given := map[string]any{"form": form, "granularity": granularity, "bits": 4,
				"variant": variantLSQ, "levels": levelsSigned, "surrogate": surrogateStraight}
			t.Run(form+"/"+granularity,
				func(t *testing.T) { sdktest.Quantizer(t, lsq{}, plugintest.Fixed(t, lsq{}, given)...) })
		}
	}
}

// TestGroups checks steps that clip some elements: only the elements that share a step with NaN or
// infinity become NaN, the largest numbers do not change other rows, and values on the grid do not
// change. The kit does not know which elements share a step.
func TestGroups(t *testing.T) {
	const rows, d = 4, 33
	x := plugintest.Normal(5, rows, d).Data
	huge := slices.Clone(x)
	for j := range d {
		huge[j] = math.MaxFloat32 * float64(1-2*(j%2))
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, form := range forms {
			for _, granularity := range []string{perTensor, perRow} {
				s := newSubject(t, m, sdk.RoleWeight, map[string]any{"form": form, "granularity": granularity},
					rows, d)
				at := trained{step: slices.Repeat([]float64{0.25}, len(s.initial(t, x).step))}
				what := form + ", by " + granularity + ": "
				value, codes, mask := s.quantize(t, x, at)
				again, codesAgain, _ := s.quantize(t, value, at)
				plugintest.Near(t, what+"Q(Q(x))", again, value, 0)
				plugintest.Near(t, what+"codes of Q(x)", codesAgain, codes, 0)
				if granularity == perRow {
					got, gotCodes, _ := s.quantize(t, huge, at)
					plugintest.Near(t, what+"below the largest numbers", got[d:], value[d:], 0)
					plugintest.Near(t, what+"codes there", gotCodes[d:], codes[d:], 0)
				}
				for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					broken := slices.Clone(x)
					broken[2*d+7] = bad
					wantValue, wantCodes, wantMask := slices.Clone(value), slices.Clone(codes), slices.Clone(mask)
					for i := range x {
						if granularity == perTensor || i/d == 2 {
							wantValue[i], wantCodes[i], wantMask[i] = math.NaN(), 0, 0
						}
					}
					gotValue, gotCodes, gotMask := s.quantize(t, broken, at)
					plugintest.Near(t, fmt.Sprint(what, bad), gotValue, wantValue, 0)
					plugintest.Near(t, fmt.Sprint(what, "codes with ", bad), gotCodes, wantCodes, 0)
					plugintest.Near(t, fmt.Sprint(what, "mask with ", bad), gotMask, wantMask, 0)
				}
			}
		}
	})
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		role  sdk.Role
		given map[string]any
		want  string
	}{
		{"one signed bit", sdk.RoleWeight, map[string]any{"bits": 1},
			"signed levels need at least 2 bits"},
		{"one signed bit, official", sdk.RoleActivation, map[string]any{"bits": 1, "form": formOfficial},
			"signed levels need at least 2 bits"},
		{"unsigned weights", sdk.RoleWeight, map[string]any{"levels": levelsUnsigned},
			"every negative weight would become zero"},
		{"offsets in the form of StableQAT", sdk.RoleActivation,
			map[string]any{"form": formStableQAT, "variant": variantPlus}, "has no offsets"},
		{"rows of activations", sdk.RoleActivation, map[string]any{"granularity": perRow},
			"tokens, which cannot have learned steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := sdk.Site{Role: c.role, Name: "site", Shape: []int{2, 4},
				Values: plugintest.Settings(t, lsq{}.Describe(), c.given)}
			_, err := sdk.BuildQuantizer(lsq{}, site)
			plugintest.Refused(t, c.name, err, c.want)
		})
	}
}

// TestLearning trains only the step, on ½·mean (x̂ − x)². From one eighth and eight times the
// initial step, the error must fall to that of the best uniform grid of eight levels for a normal
// variable, 0.037.
func TestLearning(t *testing.T) {
	const large, best = 0.4, 0.04
	x := plugintest.Normal(4, 16, 64)
	for _, form := range forms {
		s := newSubject(t, plugintest.Reference(), sdk.RoleWeight,
			map[string]any{"form": form, "bits": 3}, x.Shape...)
		for _, factor := range []float64{0.125, 8} {
			at := s.initial(t, x.Data)
			at.step[0] *= factor
			first := s.error(t, x.Data, at)
			for range 150 {
				_, d := s.gradient(t, x.Data, at, s.residual(t, x.Data, at))
				at.step[0] -= 0.04 * d.step[0]
			}
			if last := s.error(t, x.Data, at); !(first >= large && last <= best) {
				t.Errorf("%s, ×%v: error %.4f → %.4f with step %.3f, want %v at most", form, factor, first,
					last, at.step[0], best)
			}
		}
	}
}

func (s subject) residual(t *testing.T, x []float64, at trained) []float64 {
	t.Helper()
	value, _, _ := s.quantize(t, x, at)
	for i := range value {
		value[i] -= x[i]
	}
	return value
}

// error returns the mean square of the residual.
func (s subject) error(t *testing.T, x []float64, at trained) float64 {
	t.Helper()
	sum := 0.0
	for _, e := range s.residual(t, x, at) {
		sum += e * e
	}
	return sum / float64(len(x))
}

// TestScaleType checks that with scale_dtype the effective step is a number of that type, unlike
// the trained one, and that values are codes times this step.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(7, 4, 32)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for form, factors := range map[string][]float64{formPaper: {1}, formOfficial: {2, 15}} {
				if dtype == "bf16" {
					factors = []float64{1}
				}
				s := newSubject(t, m, sdk.RoleWeight,
					map[string]any{"scale_dtype": dtype, "form": form, "granularity": perRow}, x.Shape...)
				out := m.Run(t, s.built.Program,
					s.inputs(x.Data, trained{step: []float64{1.0 / 3, 0.1, 1e-5, 0.7}}))
				scale, codes, value := out[spec.OutputScale].Float64s(), out[spec.OutputCodes].Float64s(),
					out[spec.OutputValue].Float64s()
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
