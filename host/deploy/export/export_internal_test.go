package export

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestExponentsOfActivations: exponents of blocks as compressed-tensors 0.20 takes them.
func TestExponentsOfActivations(t *testing.T) {
	var golden struct {
		Scales struct {
			Max   []float64
			Codes []int `json:"compressed_tensors_exponent_code"`
		} `json:"mx_activation_scales"`
	}
	testfile.ReadJSON(t, "testdata/golden/packing.json", &golden)
	if len(golden.Scales.Max) < 10 {
		t.Fatalf("%d cases", len(golden.Scales.Max))
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
	for _, s := range []activationScheme{typeMXFP4, typeInt4, typeInt8} {
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

// TestNVFP4ScaleBetweenTwo: where scales cannot be exact, one half way between two numbers of E4M3 becomes what a cast of
// PyTorch to float8_e4m3fn makes of it. Otherwise an inexact export would differ from what compressed-tensors writes.
func TestNVFP4ScaleBetweenTwo(t *testing.T) {
	for scale, want := range map[float32]float32{1.0625: 1, 1.1875: 1.25, 0x1p-10: 0, 3 * 0x1p-10: 0x1p-8, 1.0625001: 1.125, 1.0624999: 1, 447: 448, 448: 448} {
		s, ok := findNVFP4([]float32{448, 1.0625, scale}) // 17/16 of a number of E4M3 is none, whatever the global scale
		if !ok || s.exact || s.global != 1 {
			t.Fatalf("%v: %+v, %t: want an inexact one with the global scale 1", scale, s, ok)
		}
		if got := e4m3(s.blocks[scale]); got != want {
			t.Errorf("the scale %v becomes %v, want %v", scale, got, want)
		}
	}
}

// e4m3 is the number of E4M3 with a code, worked out by its definition.
func e4m3(code byte) float32 {
	exponent, mantissa := int(code>>3), float32(code&7)
	v := (8 + mantissa) / 8
	if exponent == 0 {
		exponent, v = 1, mantissa/8
	}
	for ; exponent < 7; exponent++ {
		v /= 2
	}
	for ; exponent > 7; exponent-- {
		v *= 2
	}
	return v
}

// PlanOnly checks and plans an export without writing it.
func PlanOnly(format string, m *Model) error {
	if err := m.Tokenizer.check(m.Settings.Vocab); err != nil {
		return err
	}
	_, err := formats[format](m, Options{})
	return err
}
