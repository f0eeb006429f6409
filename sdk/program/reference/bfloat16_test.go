package reference_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestStochasticBFloat16 checks, over all values of the 16 bits used, that the mean of the results
// is x and that only its two neighbours occur. Numbers of bfloat16 and non-finite values do not
// change.
func TestStochasticBFloat16(t *testing.T) {
	const all = 1 << 16
	b := program.NewBuilder("rounding")
	x, bits := b.Input("x", program.FloatType()),
		b.Input("bits", program.Type{DType: program.Uint, Shape: []int{all}})
	b.Output("y", x.Broadcast([]int{all}, nil).StochasticBFloat16(bits))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint32, all)
	for i := range words {
		words[i] = uint32(i)<<16 | 0xbeef
	}
	for _, v := range []float64{0, 1, -1.5, 0x1p-140, 1 + 0x1p-8, -(1 + 0x1p-8 + 0x1p-12), 3.14159274,
		1e30, -1e-30, 255.998, math.Inf(1), math.Inf(-1), math.NaN()} {
		v = float64(float32(v))
		out, err := reference.Run(p,
			map[string]reference.Tensor{"x": reference.Float(v), "bits": reference.Uints(words, all)})
		if err != nil {
			t.Fatal(err)
		}
		sum, levels := 0.0, map[float64]bool{}
		for _, y := range out["y"].Floats {
			if y == y && spec.StoreBFloat16.Round(y) != y {
				t.Fatalf("%v becomes %v, which is no number of bfloat16", v, y)
			}
			sum, levels[y] = sum+y/all, true
		}
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			if y := out["y"].Floats[7]; !(y == v || y != y && v != v) {
				t.Errorf("%v becomes %v", v, y)
			}
		case math.Abs(sum-v) > 1e-13*math.Abs(v) || len(levels) > 2:
			t.Errorf("the mean of what %v becomes is %v, of %d numbers", v, sum, len(levels))
		}
	}
}
