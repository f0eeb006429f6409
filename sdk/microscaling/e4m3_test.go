package microscaling_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// number returns the value of an E4M3 code without sign: four bits of exponent with the bias 7,
// three of mantissa.
func number(code int) float64 {
	mantissa, exponent := float64(code%8), code/8
	if exponent == 0 {
		return math.Ldexp(mantissa/8, -6)
	}
	return math.Ldexp(1+mantissa/8, exponent-7)
}

// TestE4M3 checks all finite numbers of the format, the ties between them, their neighbours, and
// saturation.
func TestE4M3(t *testing.T) {
	const last = 126 // 127 is NaN
	if number(last) != microscaling.LargestE4M3 {
		t.Fatalf("the largest number is %v", number(last))
	}
	var x, want []float64
	add := func(v, w float64) { x, want = append(x, v, -v), append(want, w, -w) }
	for code := range last + 1 {
		add(number(code), number(code))
		if code == last {
			break
		}
		middle := (number(code) + number(code+1)) / 2
		even := number(code + code%2)
		add(middle, even)
		add(float64(math.Nextafter32(float32(middle), 0)), number(code))
		add(float64(math.Nextafter32(float32(middle), 500)), number(code+1))
	}
	for _, v := range []float64{449, 463.9, 464, 500, 1e30, math.Inf(1)} {
		add(v, microscaling.LargestE4M3)
	}
	add(0x1p-149, 0)
	for p, got := range apply(t, reference.Floats(x, len(x)), microscaling.RoundE4M3) {
		for i, v := range got.Floats {
			if v != want[i] {
				t.Errorf("%s: %v becomes %v, want %v", precisions[p], x[i], v, want[i])
			}
		}
	}
}

// TestStochasticE4M3 checks that a number between two numbers of the format is rounded up if u is
// at least the distance to the upper one in ulps. Numbers of the format do not change.
func TestStochasticE4M3(t *testing.T) {
	var x []float64
	parts := []float64{0, 0.25, 0.5, 0.75}
	for code := range 126 {
		for _, part := range parts {
			v := number(code) + part*(number(code+1)-number(code))
			x = append(x, v, -v)
		}
	}
	for _, u := range []float64{0, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 1 - 0x1p-17} {
		rounded := apply(t, reference.Floats(x, len(x)),
			func(v program.Value) program.Value {
				return microscaling.StochasticE4M3(v, v.Builder().Const(u))
			})
		for p, got := range rounded {
			for i, v := range got.Floats {
				code, part := i/(2*len(parts)), parts[i/2%len(parts)]
				up := part > 0 && u >= 1-part
				if i%2 == 1 { // below zero, the upper number has the smaller magnitude
					up = part > 0 && u < part
				}
				want := number(code)
				if up {
					want = number(code + 1)
				}
				if math.Abs(v) != want {
					t.Errorf("%s, u = %v: %v becomes %v, want ±%v", precisions[p], u, x[i], v, want)
				}
			}
		}
	}
	for _, got := range apply(t, reference.Floats([]float64{448, 449, 1e30}, 3),
		func(v program.Value) program.Value {
			return microscaling.StochasticE4M3(v, v.Builder().Const(0.9))
		}) {
		for _, v := range got.Floats {
			if v != microscaling.LargestE4M3 {
				t.Errorf("%v is above the format", v)
			}
		}
	}
}
