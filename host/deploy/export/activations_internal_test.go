package export

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestExponentsOfActivations: exponents of blocks as compressed-tensors 0.20 takes them.
func TestExponentsOfActivations(t *testing.T) {
	text, err := os.ReadFile("testdata/golden/packing.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Scales struct {
			Max   []float64
			Codes []int `json:"compressed_tensors_exponent_code"`
		} `json:"mx_activation_scales"`
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Scales.Max) < 10 {
		t.Fatalf("%d cases, %v", len(golden.Scales.Max), err)
	}
	for i, m := range golden.Scales.Max {
		scale := math.Ldexp(1, golden.Scales.Codes[i]-127)
		x := make([]float32, mxfp4Block)
		x[0], x[1] = float32(m), float32(scale/2) // the second is the smallest number of the block that is not 0
		quantizeMX(x)
		if want := float32(roundE2M1(m/scale) * scale); x[0] != want || x[1] != float32(scale/2) {
			t.Errorf("a block of %v and %v became %v and %v, want the scale %v", m, scale/2, x[0], x[1], scale)
		}
	}
}

// TestSchemeOfActivation: a quantizer is known by what it does.
func TestSchemeOfActivation(t *testing.T) {
	apply := func(s activationScheme, change func(x []float32)) func([]float32) ([]float32, error) {
		return func(x []float32) ([]float32, error) {
			for token := range slices.Chunk(x, 64) {
				s.quantize(token)
			}
			change(x)
			return x, nil
		}
	}
	same := func([]float32) {}
	for _, s := range activationSchemes {
		a := Activation{Name: "layers.0.mlp.input", Width: 64, Rows: 8, Quantize: apply(s, same)}
		if got, err := schemeOfActivation(a); err != nil || got != s {
			t.Errorf("%s is taken for %q, %v", s, got, err)
		}
		a.Quantize = apply(s, func(x []float32) { x[200] = math.Nextafter32(x[200]+1, 0) })
		if got, err := schemeOfActivation(a); err == nil || !strings.Contains(err.Error(), "as "+string(s)+" 1 of 512 numbers differ") {
			t.Errorf("%s with one number changed is taken for %q, %v", s, got, err)
		}
	}
}
