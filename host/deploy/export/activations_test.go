package export

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/spec"
)

// row returns a quantizer of rows of 128 elements, with a rule for the scales of blocks.
func row(block int, rule func(largest float32) float32) *Activation {
	return &Activation{Width: 128, Quantize: func(x []float32) (value, scale []float32, err error) {
		for at := 0; at < len(x); at += block {
			largest := float32(0)
			for _, v := range x[at : at+block] {
				largest = max(largest, float32(math.Abs(float64(v))))
			}
			s := rule(largest)
			for _, v := range x[at : at+block] {
				code := nearest(v, s, spec.Grid{Format: spec.FormatE2M1})
				value = append(value, e2m1[code]*s)
			}
			scale = append(scale, s)
		}
		return value, scale, nil
	}}
}

// TestInputs checks that inputs only count as quantized if they follow the rule of
// compressed-tensors, with the global scale of the quantizer.
func TestInputs(t *testing.T) {
	ceil := func(m float32) float32 { return float32(math.Exp2(math.Ceil(math.Log2(float64(m / 6))))) }
	floor := func(m float32) float32 {
		return float32(math.Exp2(math.Floor(math.Log2(float64(m))) - 2))
	}
	fixed := func(global float32) func(float32) float32 {
		return func(m float32) float32 { return servedNVFP4(m, global) }
	}
	for _, c := range []struct {
		name string
		typ  string
		a    *Activation
		want inputs
	}{
		{"the rule of MXFP4", typeMXFP4, row(32, servedMXFP4), inputs{quantized: true}},
		{"MXFP4 rounded up", typeMXFP4, row(32, ceil), inputs{}},
		{"MXFP4 rounded down", typeMXFP4, row(32, floor), inputs{}},
		{"MXFP4 in blocks of 16", typeMXFP4, row(16, servedMXFP4), inputs{}},
		{"a power of two", typeNVFP4, row(16, fixed(256)), inputs{true, 256}},
		{"another number", typeNVFP4, row(16, fixed(300.7)), inputs{true, 300.7}},
		{"the scale of the row", typeNVFP4,
			&Activation{Width: 128, Quantize: func(x []float32) (value, scale []float32, err error) {
				largest := float32(0)
				for _, v := range x {
					largest = max(largest, float32(math.Abs(float64(v))))
				}
				return row(16, fixed(2688/largest)).Quantize(x)
			}}, inputs{}},
		{"MXFP4 for NVFP4", typeNVFP4, row(32, servedMXFP4), inputs{}},
		{"integers", typeInt4, row(32, servedMXFP4), inputs{}},
	} {
		if got, err := inputsOf(c.a, c.typ); err != nil || got.quantized != c.want.quantized ||
			math.Abs(float64(got.global/c.want.global-1)) > 2e-7 {
			t.Errorf("%s: %+v, error %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestServedScales compares scales of blocks with those of compressed-tensors 0.20.
func TestServedScales(t *testing.T) {
	for largest, want := range map[float32]float32{1: 0.25, 1.74: 0.25, 1.75: 0.5, 3.5: 1, 6: 1,
		7: 2} {
		if got := servedMXFP4(largest); got != want {
			t.Errorf("MXFP4, largest %v: the scale is %v, want %v", largest, got, want)
		}
	}
	for largest, want := range map[float32]float32{6: 1, 6.1: 1, 6.5: 1.125, 1e9: 448.0 / 64, 0: 0} {
		if got := servedNVFP4(largest, 64); got != want {
			t.Errorf("NVFP4, largest %v: the scale is %v, want %v", largest, got, want)
		}
	}
}

// TestInputsWithOtherTies checks that numbers halfway between two levels must be rounded to even.
func TestInputsWithOtherTies(t *testing.T) {
	away := row(32, servedMXFP4)
	quantize := away.Quantize
	away.Quantize = func(x []float32) (value, scale []float32, err error) {
		moved := make([]float32, len(x))
		for i, v := range x {
			moved[i] = math.Float32frombits(math.Float32bits(v) + 1) // just above halfway
		}
		value, scale, err = quantize(moved)
		return value, scale, err
	}
	if got, err := inputsOf(away, typeMXFP4); err != nil || got.quantized {
		t.Errorf("ties away from zero: %+v, error %v", got, err)
	}
}
