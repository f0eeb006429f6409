package passes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// quantizer returns a program of a matrix; make returns the codes and the scale of its value.
func quantizer(
	make func(b *program.Builder, x program.Value) (codes, scale program.Value),
) *program.Program {
	b := program.NewBuilder("q")
	codes, scale := make(b, b.Input("x", program.FloatType(3, 8)))
	b.Output("value", codes.Mul(scale))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

func highest(x program.Value) program.Value { return x.Abs().MaxRow() }

// TestRows checks which programs are factored, and that the products of their integers and scales
// are the values, in binary32, to the last bit.
func TestRows(t *testing.T) {
	type value = program.Value
	for name, tt := range map[string]struct {
		make    func(b *program.Builder, x value) (codes, scale value)
		largest float64 // of the integers; 0: not factored
	}{
		"clip, then round": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Round(), highest(x)
		}, 8},
		"round, then clip": {func(_ *program.Builder, x value) (value, value) {
			return x.Round().Clip(-3, 3), highest(x)
		}, 3},
		"the scale first": {func(_ *program.Builder, x value) (value, value) {
			return highest(x), x.Clip(-1, 1).Round()
		}, 1},
		"one scale": {func(b *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Round(), b.Const(0.3)
		}, 8},
		"between the marks": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Floor().Shift(0.5), highest(x)
		}, 15},
		"shifted": {func(b *program.Builder, x value) (value, value) {
			return b.Const(0.25).Sub(x.Round().Clip(-4, 4).Neg()), highest(x)
		}, 17},
		"NaN where it is not finite": {func(b *program.Builder, x value) (value, value) {
			return x.IsFinite().Select(x.Clip(-8, 7).Round(), b.Const(math.NaN())), highest(x)
		}, 8},
		"a step that would make the scale infinite": {func(b *program.Builder, x value) (value, value) {
			return x.Clip(0, 1).Round().Scale(64), b.Const(math.Exp2(122))
		}, 64},
		"8 bits": {func(_ *program.Builder, x value) (value, value) {
			return x.Scale(64).Round().Clip(-128, 127), highest(x)
		}, 128},
		"more than 8 bits": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-127, 128).Round(), highest(x)
		}, 0},
		"without limits": {func(_ *program.Builder, x value) (value, value) {
			return x.Round(), highest(x)
		}, 0},
		"not rounded": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7), highest(x)
		}, 0},
		"clipped between codes": {func(_ *program.Builder, x value) (value, value) {
			return x.Round().Clip(-0.3, 7), highest(x)
		}, 0},
		"a scale for each": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Round(), x.Abs()
		}, 0},
		"a scale for columns": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Round(), x.ReduceMax(0).Reshape(1, 8)
		}, 0},
		"rounded up to 128": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(0, 1-1.0/(1<<24)).Shift(127).Floor(), highest(x)
		}, 0},
		"two grids": {func(b *program.Builder, x value) (value, value) {
			return x.Gt(b.Const(1)).Select(x.Clip(-8, 7).Round(), x.Clip(-1, 1).Round().Shift(0.125)),
				highest(x)
		}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			p := quantizer(tt.make)
			f, ok := passes.FactorRows(p, "value")
			if ok != (tt.largest > 0) {
				t.Fatalf("factored: %t\n%s", ok, p)
			}
			if ok {
				checkFactored(t, p, f, tt.largest)
			}
		})
	}
}

func checkFactored(t *testing.T, p, factored *program.Program, largest float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	x := reference.Tensor{Type: p.Inputs[0].Type}
	for range x.Type.Size() {
		x.Floats = append(x.Floats, float64(float32(6*rng.NormFloat64())))
	}
	x.Floats[2*8+3] = math.NaN() // the last row
	out, err := reference.Run32(factored, map[string]reference.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	integers, scale := out[passes.OutputIntegers], out[passes.OutputScale]
	if want := program.FloatType(3, 1); !scale.Type.Equal(want) {
		t.Fatalf("the scales are %s, want %s", scale.Type, want)
	}
	seen := 0.0
	for i, want := range out["value"].Floats {
		n := integers.Floats[i]
		if i/8 == 2 {
			if math.IsNaN(want) && !math.IsNaN(scale.Floats[2]) {
				t.Errorf("the value %d is NaN, and the scale of its row %g", i, scale.Floats[2])
			}
			continue
		}
		seen = max(seen, math.Abs(n))
		if n != math.Trunc(n) || math.Abs(n) > largest {
			t.Errorf("code %d is %g", i, n)
		}
		if got := float64(float32(n) * float32(scale.Floats[i/8])); got != want {
			t.Errorf("value %d is %g · %g = %g, want %g", i, n, scale.Floats[i/8], got, want)
		}
	}
	if seen == 0 {
		t.Error("all codes are 0")
	}
}

// A quantizer to integers from −8 to 7.
func ExampleFactorRows() {
	b := program.NewBuilder("uniform")
	x := b.Input("x", program.FloatType(2, 8))
	scale := x.Abs().MaxRow().Scale(0.125)
	b.Output("value", x.Div(scale).Clip(-8, 7).Round().Mul(scale))
	p, _ := b.Build()
	factored, ok := passes.FactorRows(p, "value")
	fmt.Println(ok)
	for _, o := range factored.Outputs {
		fmt.Println(o.Name, factored.TypeOf(o.Value))
	}
	// Output:
	// true
	// value float[2,8]
	// factor.integers float[2,8]
	// factor.scale float[2,1]
}

// TestRefused checks that programs whose codes can exceed their apparent limits are not factored.
func TestRefused(t *testing.T) {
	type value = program.Value
	for name, make := range map[string]func(b *program.Builder, x value) (codes, scale value){
		"a negative divisor": func(b *program.Builder, x value) (value, value) {
			r := x.Clip(-127.4, 127.4)
			d := r.Gt(b.Const(0)).Select(b.Const(-2), b.Const(-1))
			return r.Div(d).Round().Mul(d), highest(x)
		},
		"a quotient that underflows": func(b *program.Builder, x value) (value, value) {
			d := b.Const(math.Exp2(127))
			return x.Clip(0, 0.74*math.Exp2(-22)).Div(d).Mul(d).Scale(170 * math.Exp2(22)).Floor(),
				highest(x)
		},
		"many sums that are rounded": func(b *program.Builder, x value) (value, value) {
			d := b.Const(1)
			q := x.Clip(0.5, 1).Div(d)
			for range 40 {
				q = q.Shift(1.0001 * math.Exp2(-24))
			}
			return q.Mul(d).Scale(127.9995).Floor(), highest(x)
		},
		"∞ − ∞": func(b *program.Builder, x value) (value, value) {
			return x.Clip(0, math.Inf(1)).Shift(math.Inf(-1)).Round(), highest(x)
		},
	} {
		if f, ok := passes.FactorRows(quantizer(make), "value"); ok {
			t.Errorf("%s: factored\n%s", name, f)
		}
	}
}
