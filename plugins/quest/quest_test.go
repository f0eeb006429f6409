package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestConformance covers all forms with each mask, rotated and not, beside what the kit
// combines by itself.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, quest{}, plugintest.Kit(t, "quest")...)
	if testing.Short() {
		return // the tests below compare what other settings compute
	}
	for _, form := range []string{formPaper, formOfficial, formTernary} {
		for _, mask := range []string{maskTrust, maskClip, maskNone} {
			for _, rotation := range []string{rotateAuto, rotateNone} {
				given := map[string]any{"form": form, "mask": mask, "rotation": rotation, "bits": 3, "k_table": tableMatched, "trust": 1.0, "zero_guard": true}
				t.Run(form+"/"+mask+"/"+rotation, func(t *testing.T) { sdktest.Quantizer(t, quest{}, plugintest.With(t, given)...) })
			}
		}
	}
	for _, bits := range []int{1, 4} {
		t.Run(fmt.Sprintf("unguarded, %d bits", bits), func(t *testing.T) {
			given := map[string]any{"form": formOfficial, "zero_guard": false, "bits": bits}
			sdktest.Quantizer(t, quest{}, plugintest.With(t, given)...)
		})
	}
	t.Run("8 bits", func(t *testing.T) { sdktest.Quantizer(t, quest{}, plugintest.With(t, map[string]any{"bits": 8})...) })
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
				q := m.Quantize(t, quest{}, map[string]any{"form": form, "bits": bits, "rotation": rotateNone}, x)
				for i, c := range q.Codes {
					if c < lo || c > hi {
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

// TestResidual: all that the backward pass keeps of the forward pass is the mask,
// one bit of information for each entry.
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

// TestOddRows: rows of odd length cannot be rotated by auto, which is worth a
// warning; a row of one entry has nothing to rotate.
func TestOddRows(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for _, test := range []struct {
		rotation string
		length   int
		warns    bool
	}{{"auto", 33, true}, {"none", 33, false}, {"auto", 32, false}, {"auto", 1, false}} {
		log.Reset()
		plugintest.BuildQuantizer(t, quest{}, map[string]any{"rotation": test.rotation}, 2, test.length)
		if got := strings.Contains(log.String(), "length=33"); got != test.warns {
			t.Errorf("%s, rows of %d: logged %q", test.rotation, test.length, log.String())
		}
	}
}
