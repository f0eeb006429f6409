package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestConformance covers all forms with each mask, with and without rotation, beside the kit's
// combinations. By default each pair of form and mask is tried once.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, quest{},
		plugintest.Kit(t, "kit", sdktest.GoldenFile(t, "testdata/official.json"))...)
	if testing.Short() {
		return // the rest covers other settings
	}
	for f, form := range []string{formPaper, formOfficial, formTernary} {
		for m, mask := range []string{maskTrust, maskClip, maskNone} {
			for r, rotation := range []string{rotateAuto, microscaling.NoRotation} {
				if !testlevel.All() && r != (f+m)%2 {
					continue
				}
				given := map[string]any{"form": form, "mask": mask, "rotation": rotation, "bits": 3,
					"trust": 1.0}
				t.Run(form+"/"+mask+"/"+rotation,
					func(t *testing.T) { sdktest.Quantizer(t, quest{}, plugintest.Fixed(t, quest{}, given)...) })
			}
		}
	}
	for _, bits := range []int{1, 4} {
		t.Run(fmt.Sprintf("official, %d bits", bits), func(t *testing.T) {
			given := map[string]any{"form": formOfficial, "bits": bits}
			sdktest.Quantizer(t, quest{}, plugintest.Fixed(t, quest{}, given)...)
		})
	}
	t.Run("8 bits", func(t *testing.T) {
		sdktest.Quantizer(t, quest{}, plugintest.Fixed(t, quest{}, map[string]any{"bits": 8})...)
	})
}

// TestRange checks that codes stay on the grid of each bit width, in rows whose
// outliers are clipped.
func TestRange(t *testing.T) {
	x := plugintest.Normal(1, 8, 64)
	for i := range 8 {
		x.Data[64*i+i] = 1000 * float64(1-2*(i%2))
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for bits := 1; bits <= 8; bits++ {
			for _, form := range []string{formPaper, formOfficial} {
				if form == formPaper && bits == 1 {
					continue
				}
				lo, hi := -float64(int(1)<<(bits-1)), float64(int(1)<<(bits-1)-1)
				if form == formOfficial {
					hi = float64(int(1)<<bits - 1)
					lo = -hi
				}
				q := m.Quantize(t, quest{},
					map[string]any{"form": form, "bits": bits, "rotation": microscaling.NoRotation}, x)
				for i, c := range q.Codes {
					if !(c >= lo && c <= hi) {
						t.Fatalf("%s, %d bits: code %v at %d, outside %v to %v", form, bits, c, i, lo, hi)
					}
					if outlier := i%64 == i/64; outlier && q.Mask[i] != 0 {
						t.Errorf("%s, %d bits: the outlier at %d passes gradients", form, bits, i)
					}
				}
			}
		}
	})
}

func TestBadSettings(t *testing.T) {
	tests := []struct {
		given map[string]any
		want  string
	}{
		{map[string]any{"bits": 1}, "at least 2 bits"},
		{map[string]any{"rotation": "full"}, "12 is not a power of two"},
		{map[string]any{"rotation": "8"}, "the largest that do have 4"},
		{map[string]any{"rotation": "12"}, "want auto, full, none or a power of two"},
		{map[string]any{"rotation": "-4"}, "want auto, full, none or a power of two"},
		{map[string]any{"rotation": ""}, "want auto, full, none or a power of two"},
	}
	for _, test := range tests {
		plugintest.RefusesWeight(t, quest{}, test.given, test.want, 2, 12)
	}
}

// TestRank checks that all axes but the last one only number the rows.
func TestRank(t *testing.T) {
	flat := plugintest.Normal(2, 6, 8)
	deep := flat.Clone()
	deep.Shape = []int{2, 3, 8}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		a, b := m.Quantize(t, quest{}, nil, flat), m.Quantize(t, quest{}, nil, deep)
		plugintest.Near(t, "value", b.Value, a.Value, 0)
		plugintest.Near(t, "mask", b.Mask, a.Mask, 0)
		plugintest.Near(t, "scale", b.Scale, a.Scale, 0)
	})
}

// TestResidual checks that the backward pass keeps only the mask of the forward pass, one bit of
// information for each entry.
func TestResidual(t *testing.T) {
	for _, test := range []struct {
		mask string
		want program.Type
	}{
		{maskTrust, program.Type{DType: program.Bool, Shape: []int{4, 12}}},
		{maskClip, program.Type{DType: program.Bool, Shape: []int{4, 12}}},
		{maskNone, program.Type{DType: program.Bool, Shape: []int{4, 1}}},
	} {
		for _, form := range []string{formPaper, formOfficial} {
			kept := plugintest.Residuals(t, quest{}, map[string]any{"mask": test.mask, "form": form}, 4, 12)
			if len(kept) != 1 || !kept[0].Equal(test.want) {
				t.Errorf("%s, mask %s: residuals %v, want one %s", form, test.mask, kept, test.want)
			}
		}
	}
}

// TestOddRows checks that auto logs one warning for rows of odd length, which it cannot rotate; a
// row of one entry needs no rotation.
func TestOddRows(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for _, test := range []struct {
		rotation string
		length   int
		warnings int
	}{{"auto", 33, 1}, {"none", 33, 0}, {"auto", 32, 0}, {"auto", 1, 0}} {
		log.Reset()
		plugintest.BuildQuantizer(t, quest{}, map[string]any{"rotation": test.rotation}, 2, test.length)
		if got := strings.Count(log.String(), "length=33"); got != test.warnings {
			t.Errorf("%s, rows of %d: logged %q", test.rotation, test.length, log.String())
		}
	}
}

// TestScaleType checks that with scale_dtype the scales are numbers of that type, and values are
// still codes times scales. In the official form, the step and 7½ steps are numbers of f16; the
// scale is half a step.
func TestScaleType(t *testing.T) {
	x := plugintest.Normal(5, 16, 64)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, dtype := range []string{"bf16", "f16"} {
			for _, form := range []string{formPaper, formOfficial, formTernary} {
				q := m.Quantize(t, quest{},
					map[string]any{"scale_dtype": dtype, "form": form, "rotation": microscaling.NoRotation}, x)
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

// TestTernaryConstants compares the factor and its error with those of an independent
// implementation, and with the optimum.
func TestTernaryConstants(t *testing.T) {
	plugintest.Near(t, "matched k", []float64{ternaryK}, []float64{1.2240063619249617}, 1e-14)
	err := func(k float64) float64 { return gaussianError([]float64{-k, 0, k}) }
	plugintest.Near(t, "squared error", []float64{err(ternaryK)}, []float64{0.19017403924790155},
		1e-12)
	if best := minimize(err, 0.5, 3); !(math.Abs(best-ternaryK) <= 1e-6) {
		t.Errorf("the minimum is at k = %.9f, the constant is %.9f", best, ternaryK)
	}
}

// TestTernary compares rows with the definition q = round(z/(kσ)), clipped to ±1, whose mask passes
// |z/(kσ) − q| ≤ ½.
func TestTernary(t *testing.T) {
	const d = 64
	x := plugintest.Normal(7, 4, d)
	var value, codes, mask []float64
	for i := range 4 {
		squares := 0.0
		for _, v := range x.Row(i).Data {
			squares += v * v
		}
		s := ternaryK * math.Sqrt(squares/d)
		for _, v := range x.Row(i).Data {
			q := min(max(math.RoundToEven(v/s), -1), 1)
			pass := 0.0
			if math.Abs(v/s-q) <= 0.5 {
				pass = 1
			}
			value, codes, mask = append(value, q*s), append(codes, q), append(mask, pass)
		}
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, quest{},
			map[string]any{"form": formTernary, "rotation": microscaling.NoRotation}, x)
		plugintest.Near(t, "value", q.Value, value, single)
		plugintest.Near(t, "codes", q.Codes, codes, 0)
		plugintest.Near(t, "mask", q.Mask, mask, 0)
	})
}

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

// maskOf returns the mask of the paper form for ratios r = z/s of a finite row.
func maskOf(t *testing.T, r []float64, bits int, mask string, trust float64) []float64 {
	t.Helper()
	qmax := float64(int(1)<<(bits-1) - 1)
	l := levels{qmin: -qmax - 1, qmax: qmax}
	site := sdk.Site{Values: plugintest.Settings(t, quest{}.Describe(),
		map[string]any{"mask": mask, "trust": trust})}
	return plugintest.Reference().
		Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
			v := in[0]
			return []program.Value{l.mask(v, v.Clip(l.qmin, l.qmax), v.MaxRow().IsFinite(), site).
				Broadcast([]int{len(r)}, nil)}
		}, reference.Floats(r, len(r)))[0]
}

// single bounds the errors of binary32, relative to the largest value of a row: a mean of squares
// gives a few units of 6e-8.
const single = 1e-6

// TestHandChecks checks a row that was computed by hand, in two forms.
func TestHandChecks(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{3, -1, 1, 1}}
	tests := []struct {
		form               string
		value, codes, mask []float64
	}{
		{formPaper, []float64{1.815856541, -1.815856541, 1.815856541, 1.815856541},
			[]float64{1, -1, 1, 1}, []float64{0, 1, 1, 1}},
		{formOfficial, []float64{2.586877855, -0.862292618, 0.862292618, 0.862292618},
			[]float64{3, -1, 1, 1}, []float64{1, 1, 1, 1}},
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, test := range tests {
			q := m.Quantize(t, quest{}, map[string]any{"form": test.form, "bits": 2, "rotation": "none"}, x)
			plugintest.Near(t, test.form+" value", q.Value, test.value, 1e-6)
			plugintest.Near(t, test.form+" codes", q.Codes, test.codes, 0)
			plugintest.Near(t, test.form+" mask", q.Mask, test.mask, 0)
		}
	})
}

func TestBlockTable(t *testing.T) {
	golden.Load(t, "testdata/hadamard.json").
		RunList(t, "block_table", func(t *testing.T, o golden.Object) {
			d := o.Int("d")
			if got, err := newRotation("auto", d); err != nil || int(got) != o.Int("auto") {
				t.Errorf("auto for %d: %d, %v, want %d", d, got, err, o.Int("auto"))
			}
			if got, err := newRotation("full", d); (err == nil) != o.Bool("full_ok") ||
				(err == nil && int(got) != d) {
				t.Errorf("full for %d: %d, %v", d, got, err)
			}
			if got, err := newRotation("128", d); (err == nil) != o.Bool("official_ok") ||
				(err == nil && got != 128) {
				t.Errorf("128 for %d: %d, %v", d, got, err)
			}
		})
}
