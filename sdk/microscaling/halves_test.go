package microscaling_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// shortFloat is a floating-point type: the number of significant bits, and the smallest and largest
// numbers that Round returns.
type shortFloat struct {
	bits              int
	unit              float64 // distance of adjacent numbers near zero
	smallest, largest float64
}

// nearest returns the number of the type nearest to v, ties to even.
func (f shortFloat) nearest(v float64) float64 {
	_, exponent := math.Frexp(v)
	unit := max(f.unit, math.Ldexp(1, exponent-f.bits))
	return min(f.largest, max(f.smallest, math.RoundToEven(v/unit)*unit))
}

// TestScaleTypes checks the rounding of numbers of all sizes: ties, their neighbours and others.
func TestScaleTypes(t *testing.T) {
	step := func(of microscaling.ScaleType) func(program.Value) program.Value {
		return func(v program.Value) program.Value { return of.RoundStep(v, true) }
	}
	f16 := shortFloat{11, 0x1p-24, 0x1p-24, 65504}
	for name, c := range map[string]struct {
		round func(program.Value) program.Value
		model shortFloat
	}{
		"bf16":       {microscaling.ScaleBF16.Round, shortFloat{8, 0x1p-133, 0x1p-126, 0x1.fep127}},
		"bf16, step": {step(microscaling.ScaleBF16), shortFloat{8, 0x1p-133, 0x1p-126, 0x1.fep127}},
		"f16":        {microscaling.ScaleF16.Round, f16},
		"f16, step":  {step(microscaling.ScaleF16), shortFloat{7, 0x1p-23, 0x1p-23, 8704}},
	} {
		x := scalesOf(c.model.bits)
		for p, got := range apply(t, reference.Floats(x, len(x)), c.round) {
			for i, v := range got.Floats {
				if want := c.model.nearest(float64(float32(x[i]))); v != want {
					t.Errorf("%s, %s: %v becomes %v, want %v", name, precisions[p], x[i], v, want)
				}
				if low := v * 7.5; name == "f16, step" && f16.nearest(low) != low {
					t.Errorf("7.5 times %v is no half float", v)
				}
			}
		}
	}
	x := []float64{0, 1.0 / 3, 1e30}
	for p, got := range apply(t, reference.Floats(x, len(x)), microscaling.ScaleF32.Round) {
		for i, v := range got.Floats {
			if v != x[i] && v != float64(float32(x[i])) {
				t.Errorf("%s: %v becomes %v without rounding", precisions[p], x[i], v)
			}
		}
	}
}

// scalesOf returns zero and, for each exponent of binary32, some numbers with the given number of
// bits, ties between them, and their neighbours.
func scalesOf(bits int) []float64 {
	list := []float64{0}
	for exponent := -126; exponent <= 127; exponent++ {
		for _, units := range []float64{math.Ldexp(1, bits-1), math.Ldexp(1, bits-1) + 1,
			math.Ldexp(1, bits) - 1, 5.0 / 3 * math.Ldexp(1, bits-1)} {
			for _, v := range []float64{units, units + 0.5} {
				v := float32(math.Ldexp(v, exponent-bits+1))
				for _, w := range []float32{v, math.Nextafter32(v, 0), math.Nextafter32(v, math.MaxFloat32)} {
					if !math.IsInf(float64(w), 0) {
						list = append(list, float64(w))
					}
				}
			}
		}
	}
	return list
}

// apply runs f on a tensor in binary64 and in binary32 and returns both results.
func apply(
	t testing.TB, x reference.Tensor, f func(v program.Value) program.Value,
) [2]reference.Tensor {
	t.Helper()
	b := program.NewBuilder("test")
	b.Output("y", f(b.Input("x", x.Type)))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]reference.Tensor
	for i, run := range []func(*program.Program, map[string]reference.Tensor) (
		map[string]reference.Tensor, error){reference.Run, reference.Run32} {
		results, err := run(p, map[string]reference.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = results["y"]
	}
	return out
}

var precisions = [2]string{"binary64", "binary32"}
