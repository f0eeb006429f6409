package factor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// quantizer builds a program of a matrix; make returns the codes and the scale of its value.
func quantizer(make func(b *program.Builder, x program.Value) (codes, scale program.Value)) *program.Program {
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

// TestRows: which programs are factored. Those that are give integers and scales whose product is the value, in
// binary32, to the last bit.
func TestRows(t *testing.T) {
	type value = program.Value
	for name, tt := range map[string]struct {
		make    func(b *program.Builder, x value) (codes, scale value)
		largest float64 // of the integers; 0: not factored
	}{
		"clip, then round":  {func(_ *program.Builder, x value) (value, value) { return x.Clip(-8, 7).Round(), highest(x) }, 8},
		"round, then clip":  {func(_ *program.Builder, x value) (value, value) { return x.Round().Clip(-3, 3), highest(x) }, 3},
		"the scale first":   {func(_ *program.Builder, x value) (value, value) { return highest(x), x.Clip(-1, 1).Round() }, 1},
		"one scale":         {func(b *program.Builder, x value) (value, value) { return x.Clip(-8, 7).Round(), b.Const(0.3) }, 8},
		"between the marks": {func(_ *program.Builder, x value) (value, value) { return x.Clip(-8, 7).Floor().Shift(0.5), highest(x) }, 15},
		"shifted": {func(b *program.Builder, x value) (value, value) {
			return b.Const(0.25).Sub(x.Round().Clip(-4, 4).Neg()), highest(x)
		}, 17},
		"NaN where it is not finite": {func(b *program.Builder, x value) (value, value) {
			return x.IsFinite().Select(x.Clip(-8, 7).Round(), b.Const(math.NaN())), highest(x)
		}, 8},
		"a step that would make the scale infinite": {func(b *program.Builder, x value) (value, value) {
			return x.Clip(0, 1).Round().Scale(64), b.Const(math.Exp2(122))
		}, 64},
		"8 bits":                {func(_ *program.Builder, x value) (value, value) { return x.Clip(-127, 127).Round(), highest(x) }, 127},
		"more than 8 bits":      {func(_ *program.Builder, x value) (value, value) { return x.Clip(-128, 127).Round(), highest(x) }, 0},
		"without limits":        {func(_ *program.Builder, x value) (value, value) { return x.Round(), highest(x) }, 0},
		"not rounded":           {func(_ *program.Builder, x value) (value, value) { return x.Clip(-8, 7), highest(x) }, 0},
		"clipped between codes": {func(_ *program.Builder, x value) (value, value) { return x.Round().Clip(-0.3, 7), highest(x) }, 0},
		"a scale for each":      {func(_ *program.Builder, x value) (value, value) { return x.Clip(-8, 7).Round(), x.Abs() }, 0},
		"a scale for columns": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(-8, 7).Round(), x.ReduceMax(0).Reshape(1, 8)
		}, 0},
		"rounded up to 128": {func(_ *program.Builder, x value) (value, value) {
			return x.Clip(0, 1-1.0/(1<<24)).Shift(127).Floor(), highest(x)
		}, 0},
		"two grids": {func(b *program.Builder, x value) (value, value) {
			return x.Gt(b.Const(1)).Select(x.Clip(-8, 7).Round(), x.Clip(-1, 1).Round().Shift(0.125)), highest(x)
		}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			p := quantizer(tt.make)
			f, ok := factor.Rows(p, "value")
			if ok != (tt.largest > 0) {
				t.Fatalf("factored: %t\n%s", ok, p)
			}
			if ok {
				check(t, p, f, tt.largest)
			}
		})
	}
}

func check(t *testing.T, p, factored *program.Program, largest float64) {
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
	integers, scale := out[factor.OutputIntegers], out[factor.OutputScale]
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

// A quantizer to whole numbers from −8 to 7.
func ExampleRows() {
	b := program.NewBuilder("uniform")
	x := b.Input("x", program.FloatType(2, 8))
	scale := x.Abs().MaxRow().Scale(0.125)
	b.Output("value", x.Div(scale).Clip(-8, 7).Round().Mul(scale))
	p, _ := b.Build()
	factored, ok := factor.Rows(p, "value")
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

// TestRefused: programs that a proof with one condition less would take. Each value of theirs is another than such codes would
// say, or could be.
func TestRefused(t *testing.T) {
	type value = program.Value
	// near is a ratio within limits over 1 or 2, and the divisor.
	near := func(most float64, entries func(b *program.Builder, q value) value) func(v value) (e, s value) {
		return func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			r := v.Div(s).Clip(-most, most)
			d := r.Gt(b.Const(0)).Select(b.Const(2), b.Const(1))
			return entries(b, r.Div(d)).Mul(d), s
		}
	}
	scaled := func(scale func(v value) value) func(v value) (e, s value) {
		return func(v value) (value, value) { return v.Sign(), scale(v) }
	}
	nvfp4 := func(block func(v value) value) func(v value) (e, s value) {
		return func(v value) (value, value) {
			tensor := v.Abs().MaxRow().MaxAll()
			return v.Sign(), block(v).Mul(tensor)
		}
	}
	// other rounds as microscaling.RoundE4M3, by units that follow from down, and back by those that follow from up.
	other := func(down, up func(v value) value) func(v value) value {
		return func(v value) value {
			v = v.Abs().MaxRow()
			return v.Ldexp(down(v).Neg()).Round().Ldexp(up(v)).Clip(-448, 448)
		}
	}
	unit := func(v value) value { return v.Logb().Shift(-3).Clip(-9, 5) }
	const e8m0, e4m3 = factor.BlockE8M0, factor.BlockE4M3
	for name, tt := range map[string]struct {
		size int
		make func(v value) (entries, scale value)
	}{
		"a choice that is farther": {e8m0, near(6, func(b *program.Builder, q value) value {
			return q.Gt(b.Const(1)).Select(q.Clip(-1, 1).Round().Shift(3), q.Clip(-4, 4).Round())
		})},
		"a limit beyond it": {e8m0, near(6, func(_ *program.Builder, q value) value { return q.Clip(4, 4).Round() })},
		"a sum":             {e8m0, near(6, func(_ *program.Builder, q value) value { return q.Clip(-1, 1).Round().Shift(3) })},
		"a sum, turned":     {e8m0, near(6, func(b *program.Builder, q value) value { return b.Const(3).Add(q.Clip(-1, 1).Round()) })},
		"rounded up":        {e8m0, near(7, func(_ *program.Builder, q value) value { return q.Clip(-4, 4).Round() })},
		"rounded down":      {e8m0, near(6.5, func(_ *program.Builder, q value) value { return q.Neg().Clip(-4, 4).Floor() })},
		"a sum of entries": {e8m0, func(v value) (value, value) {
			n := v.Sign().ReduceSum(2).Reshape(blockRows, blockLength/32, 1)
			return n.Broadcast(v.Shape(), nil), power(v)
		}},
		"a float with the digits of the bits": {e8m0, func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			mask := b.Const(0x7f800000).Bitcast(program.Uint)
			d := v.Bitcast(program.Uint).And(mask).Bitcast(program.Float).Clip(1, 4)
			return d, s
		}},
		"bits with the digits of the float": {e8m0, func(v value) (value, value) {
			six := v.Builder().ConstUint(6).Bitcast(program.Float)
			return six.Broadcast(v.Shape(), nil), power(v)
		}},
		"scales below the format": {e8m0, scaled(func(v value) value { return v.Builder().Const(1).Ldexp(exponent(v).Clip(-140, 100)) })},
		"a sum of scales": {e8m0, scaled(func(v value) value {
			return power(v).Broadcast(v.Shape(), nil).ReduceSum(2).Reshape(blockRows, blockLength/32, 1)
		})},
		"units that are rounded": {e8m0, scaled(func(v value) value {
			return v.Builder().Const(4.0 / 3).Ldexp(exponent(v).Clip(-147, 100)).Scale(math.Exp2(25))
		})},
		"units that a product rounds": {e8m0, scaled(func(v value) value {
			return v.Builder().Const(1).Ldexp(exponent(v).Clip(-147, 100)).Scale(4.0 / 3).Scale(math.Exp2(25))
		})},
		"NaN before the quotient": {e8m0, func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			r := v.Div(s).Clip(-6, 6)
			d := r.Gt(b.Const(0)).Select(b.Const(2), b.Const(1))
			return r.Gt(b.Const(5)).Select(b.Const(math.NaN()), r).Div(d).Clip(-4, 4).Round().Mul(d), s
		}},
		"the sign of NaN": {e8m0, func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			d := v.Lt(b.Const(0)).Select(b.Const(1), b.Const(2))
			return v.Div(s).Sign().Scale(2).Div(d).Clip(-4, 4).Round().Mul(d), s
		}},
		"no unit":            {e8m0, scaled(func(v value) value { return v.Abs().MaxRow().Clip(0.25, 4) })},
		"numbers with signs": {e4m3, nvfp4(func(v value) value { return microscaling.RoundE4M3(v.MinRow().Scale(2).Div(v.Abs().MaxRow())) })},
		"another unit":       {e4m3, nvfp4(other(func(v value) value { return v.Logb().Shift(-3).Clip(-9, -9) }, unit))},
		"another exponent": {e4m3, nvfp4(func(v value) value {
			v = v.Abs().MaxRow()
			u := unit(v.Square())
			return v.Ldexp(u.Neg()).Round().Ldexp(u).Clip(-448, 448)
		})},
	} {
		if f, ok := factor.Blocks(blockQuantizer(tt.size, tt.make), "value"); ok {
			t.Errorf("%s: factored\n%s", name, f)
		}
	}
	for name, make := range map[string]func(b *program.Builder, x value) (codes, scale value){
		"a negative divisor": func(b *program.Builder, x value) (value, value) {
			r := x.Clip(-127.4, 127.4)
			d := r.Gt(b.Const(0)).Select(b.Const(-2), b.Const(-1))
			return r.Div(d).Round().Mul(d), highest(x)
		},
		"a quotient that underflows": func(b *program.Builder, x value) (value, value) {
			d := b.Const(math.Exp2(127))
			return x.Clip(0, 0.74*math.Exp2(-22)).Div(d).Mul(d).Scale(170 * math.Exp2(22)).Floor(), highest(x)
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
		if f, ok := factor.Rows(quantizer(make), "value"); ok {
			t.Errorf("%s: factored\n%s", name, f)
		}
	}
}
