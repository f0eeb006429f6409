package factor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

const blockRows, blockLength = 4, 64

// blockQuantizer builds a program of a matrix in blocks of a size; make returns the entries and the scale of each block.
func blockQuantizer(size int, make func(v program.Value) (entries, scale program.Value)) *program.Program {
	b := program.NewBuilder("q")
	blocks := microscaling.NewBlocks([]int{blockRows, blockLength}, size)
	entries, scale := make(blocks.Split(b.Input("x", program.FloatType(blockRows, blockLength))))
	b.Output("value", blocks.Join(entries.Mul(scale)))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

// power is the power of two that makes the largest magnitude of each block less than 8.
func power(v program.Value) program.Value {
	return v.Builder().Const(1).Ldexp(exponent(v).Clip(-127, 127))
}

func exponent(v program.Value) program.Value { return v.Abs().MaxRow().Logb().Shift(-2) }

// TestBlocks: which programs are factored. Those that are give codes and scales of the value, to the last bit.
func TestBlocks(t *testing.T) {
	type value = program.Value
	e2m1 := func(ties microscaling.Ties) func(v value) (entries, scale value) {
		return func(v value) (value, value) {
			s := power(v)
			return microscaling.RoundE2M1(v.Div(s), ties), s
		}
	}
	whole := func(lo, hi float64) func(v value) (entries, scale value) {
		return func(v value) (value, value) {
			s := power(v)
			return v.Div(s).Clip(lo, hi).Round(), s
		}
	}
	scaled := func(scale func(v value) value) func(v value) (entries, scale value) {
		return func(v value) (value, value) {
			s := scale(v)
			return microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven), s
		}
	}
	for name, tt := range map[string]struct {
		make func(v value) (entries, scale value)
		ok   bool
	}{
		"ties to even":     {e2m1(microscaling.TiesEven), true},
		"ties away":        {e2m1(microscaling.TiesAway), false},
		"ties down":        {e2m1(microscaling.TiesDown), false},
		"the scale first":  {func(v value) (value, value) { p, s := e2m1(microscaling.TiesEven)(v); return s, p }, true},
		"numbers up to 4":  {whole(-4, 4), true},
		"numbers up to 5":  {whole(-4, 5), false},
		"numbers up to -5": {whole(-5, 4), false},
		"halves": {func(v value) (value, value) {
			s := power(v)
			return v.Div(s).Clip(-4, 4).Round().Scale(0.5), s
		}, true},
		"thirds": {func(v value) (value, value) {
			s := power(v)
			return v.Div(s).Clip(-4, 4).Round().Scale(1.0 / 3), s
		}, false},
		"rounded up to 5": {func(v value) (value, value) {
			s := power(v)
			return v.Div(s).Clip(0, 1-1.0/(1<<24)).Shift(4).Floor(), s
		}, false},
		"rounded up to 7": {func(v value) (value, value) {
			s := power(v)
			return v.Div(s).Clip(0.65, 0.7).Scale(10).Floor(), s
		}, false},
		"a product that is rounded": {func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			return v.Gt(s).Select(b.Const(0.7), b.Const(0)).Scale(10), s
		}, false},
		"one bit": {func(v value) (value, value) {
			return v.Gt(v.Builder().Const(0)).Select(v.Builder().Const(1), v.Builder().Const(-1)), power(v)
		}, true},
		"a table": {func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			return v.Abs().Gt(s.Scale(5)).Select(b.Const(6), v.Abs().Gt(s).Select(b.Const(3), b.Const(0.5))).Mul(v.Sign()), s
		}, true},
		"NaN where it is not finite": {scaled(func(v value) value {
			return v.Abs().MaxRow().IsFinite().Select(power(v), v.Builder().Const(math.NaN()))
		}), true},
		"one scale": {scaled(func(v value) value { return v.Builder().Full(0.25, blockRows, blockLength/32, 1) }), true},
		"4/3 of powers": {scaled(func(v value) value {
			return v.Builder().Const(4.0 / 3).Ldexp(exponent(v).Clip(-127, 127))
		}), true},
		"of two units": {scaled(func(v value) value {
			b, e := v.Builder(), exponent(v).Clip(-100, 100)
			return e.Gt(b.Const(0)).Select(b.Const(4.0/3).Ldexp(e), b.Const(1).Ldexp(e))
		}), false},
		"any scale": {scaled(func(v value) value { return v.Abs().MaxRow().Scale(1.0 / 6) }), false},
		"exponents without limits": {scaled(func(v value) value {
			return v.Builder().Const(1).Ldexp(exponent(v))
		}), false},
		"larger exponents": {scaled(func(v value) value {
			return v.Builder().Const(2).Ldexp(exponent(v).Clip(-127, 127))
		}), false},
		"divided by something else": {func(v value) (value, value) {
			s := power(v)
			r := v.Div(s).Clip(-6, 6)
			distance := r.Bitcast(program.Uint).And(v.Builder().ConstUint(0x7f800000)).Bitcast(program.Float).Clip(1, 4).Scale(0.5)
			return r.Div(distance.Scale(0.5)).Clip(-4, 4).Round().Mul(distance), s // 8 is among them
		}, false},
		"scales that are 0": {scaled(func(v value) value {
			return v.Builder().Const(1).Ldexp(exponent(v).Clip(-160, -40)).Scale(math.Exp2(100)).Scale(math.Exp2(60))
		}), false},
		"scales that are ∞": {scaled(func(v value) value {
			return v.Builder().Const(1).Ldexp(exponent(v).Clip(0, 160)).Scale(math.Exp2(-100))
		}), false},
		"NaN that a limit makes a number": {func(v value) (value, value) {
			b, s := v.Builder(), power(v)
			r := v.Div(s).Clip(-6, 6)
			d := r.Gt(b.Const(0)).Select(b.Const(2), b.Const(1))
			return r.Gt(b.Const(5)).Select(b.Const(math.NaN()), r.Div(d)).Clip(-4, 4).Round().Mul(d), s
		}, false},
		"another mask": {func(v value) (value, value) {
			s := power(v)
			r := v.Div(s).Clip(-6, 6)
			distance := r.Bitcast(program.Uint).And(v.Builder().ConstUint(0x7fc00000)).Bitcast(program.Float).Clip(1, 4).Scale(0.5)
			return r.Div(distance).Clip(-4, 4).Round().Mul(distance), s
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tolerance := 0.0
			if name == "4/3 of powers" { // which binary32 rounds
				tolerance = 1e-7
			}
			p := blockQuantizer(factor.BlockE8M0, tt.make)
			checkCase(t, p, tt.ok, factor.BlockE8M0, tolerance)
			if _, ok := factor.Rows(p, "value"); ok {
				t.Error("there is no scale for a row")
			}
		})
	}
}

// TestRowsOfBlocks: what has another number of rows than the matrix.
func TestRowsOfBlocks(t *testing.T) {
	for _, rows := range []int{blockRows / 2, 2 * blockRows} {
		b := program.NewBuilder("q")
		v := b.Input("x", program.FloatType(blockRows, blockLength)).Reshape(rows, blockRows*blockLength/32/rows, 32)
		s := power(v)
		b.Output("value", microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven).Mul(s).Reshape(blockRows, blockLength))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := factor.Blocks(p, "value"); ok {
			t.Errorf("%d rows were factored", rows)
		}
	}
}

// TestNoBlocks: blocks of another size, and rows that blocks do not fill.
func TestNoBlocks(t *testing.T) {
	for _, tt := range []struct{ length, size int }{{64, 8}, {64, 16}, {64, 64}, {48, 32}} {
		b := program.NewBuilder("q")
		blocks := microscaling.NewBlocks([]int{blockRows, tt.length}, tt.size)
		v := blocks.Split(b.Input("x", program.FloatType(blockRows, tt.length)))
		s := power(v)
		b.Output("value", blocks.Join(microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven).Mul(s)))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := factor.Blocks(p, "value"); ok {
			t.Errorf("rows of %d in blocks of %d were factored", tt.length, tt.size)
		}
	}
}

// checkCase factors a program, where that is to be ok.
func checkCase(t *testing.T, p *program.Program, want bool, size int, tolerance float64) {
	t.Helper()
	f, ok := factor.Blocks(p, "value")
	if ok != want {
		t.Fatalf("factored: %t\n%s", ok, p)
	}
	if ok {
		checkBlocks(t, f, size, tolerance)
	}
}

// checkBlocks compares the value of a factored program with what its codes and scales say, on numbers of all sizes that a
// scale of 8 bits tells apart.
func checkBlocks(t *testing.T, factored *program.Program, size int, tolerance float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	x := reference.Tensor{Type: factored.Inputs[0].Type}
	for i := range blockRows * blockLength {
		v := float32(math.Ldexp(rng.NormFloat64(), i/factor.BlockE8M0*30-110))
		if size == factor.BlockE4M3 { // not finite is the whole tensor, then
			v = float32(math.Ldexp(rng.NormFloat64(), i/factor.BlockE4M3-12))
		} else if i == 33 || i == 70 {
			v = float32(math.Inf(1 - 2*(i%2)))
		} else if i == 100 {
			v = float32(math.NaN())
		}
		if i >= blockLength*blockRows-factor.BlockE8M0 {
			v = 0
		}
		x.Floats = append(x.Floats, float64(v))
	}
	out, err := reference.Run32(factored, map[string]reference.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{factor.OutputPacked, factor.OutputScales} {
		for _, v := range out[name].Floats {
			if v != math.Trunc(v) || v < -128 || v > 127 {
				t.Fatalf("%s: %g is no byte", name, v)
			}
		}
	}
	again := unblocked(t, out, size)
	numbers := 0
	finite := func(x float64) bool { return x-x == 0 }
	values := out["value"].Floats
	for i, want := range values {
		got, block := again[i], values[i/size*size:][:size]
		switch {
		case math.IsNaN(got) && slices.ContainsFunc(block, func(x float64) bool { return !finite(x) }): // its codes may say that all are NaN
		case got != want && !(finite(want) && math.Abs(got-want) <= tolerance*math.Abs(want)):
			t.Errorf("value %d of %g is %g, its codes say %g", i, x.Floats[i], want, got)
		}
		if !math.IsNaN(got) && got != 0 {
			numbers++
		}
	}
	if numbers < 3*factor.BlockE8M0 {
		t.Errorf("only %d values are numbers and not 0", numbers)
	}
}

// unblocked is the matrix that the outputs of a factored program stand for.
func unblocked(t *testing.T, out map[string]reference.Tensor, size int) []float64 {
	t.Helper()
	given := map[string]reference.Tensor{}
	for _, name := range []string{factor.OutputPacked, factor.OutputScales} {
		given[name] = out[name]
	}
	again, err := reference.Run32(factor.Dequantize(blockRows, blockLength, size, "value"), given)
	if err != nil {
		t.Fatal(err)
	}
	values := again["value"].Floats
	for i := range values {
		values[i] *= out[factor.OutputOverall].Floats[i/blockLength]
	}
	return values
}

// A quantizer to the four-bit floats of MXFP4.
func ExampleBlocks() {
	b := program.NewBuilder("mxfp4")
	blocks := microscaling.NewBlocks([]int{2, 64}, factor.BlockE8M0)
	v := blocks.Split(b.Input("x", program.FloatType(2, 64)))
	scale := b.Const(1).Ldexp(v.Abs().MaxRow().Logb().Shift(-2).Clip(-127, 127))
	b.Output("value", blocks.Join(microscaling.RoundE2M1(v.Div(scale), microscaling.TiesEven).Mul(scale)))
	p, _ := b.Build()
	factored, ok := factor.Blocks(p, "value")
	fmt.Println(ok)
	for _, o := range factored.Outputs {
		fmt.Println(o.Name, factored.TypeOf(o.Value))
	}
	// Output:
	// true
	// value float[2,64]
	// factor.packed float[2,32]
	// factor.scales float[2,2]
	// factor.overall float[2,1]
}

// TestBlocksE4M3: which scales are numbers of E4M3 and one for the tensor.
func TestBlocksE4M3(t *testing.T) {
	type value = program.Value
	nvfp4 := func(round func(v value) value, scale func(block, tensor value) value) func(v value) (entries, scale value) {
		return func(v value) (value, value) {
			largest := v.Abs().MaxRow()
			tensor := largest.MaxAll().Scale(1.0 / 2688)
			s := scale(round(largest.Scale(1.0/6).Div(tensor)), tensor)
			return microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven), s
		}
	}
	times := func(block, tensor value) value { return block.Mul(tensor) }
	// other rounds as RoundE4M3 does, with other limits.
	other := func(mantissa, least, largest, limit float64) func(v value) value {
		return func(v value) value {
			unit := v.Logb().Shift(-mantissa).Clip(least, largest)
			return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(-limit, limit)
		}
	}
	for name, tt := range map[string]struct {
		make func(v value) (entries, scale value)
		size int
		ok   bool
	}{
		"times":        {nvfp4(microscaling.RoundE4M3, times), 16, true},
		"times, later": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value { return tensor.Mul(block) }), 16, true},
		"over": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return block.Div(tensor.Builder().Const(1).Div(tensor))
		}), 16, true},
		"NaN where it is not finite": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return tensor.IsFinite().Select(block.Mul(tensor), tensor.Builder().Const(math.NaN()))
		}), 16, true},
		"0 where it is not finite": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return tensor.IsFinite().Select(block.Mul(tensor), tensor.Builder().Const(0))
		}), 16, false},
		"blocks of 32":    {nvfp4(microscaling.RoundE4M3, times), 32, false},
		"smaller limits":  {nvfp4(other(3, -8, 4, 240), times), 16, true},
		"two bits":        {nvfp4(other(2, -9, 5, 448), times), 16, false},
		"finer":           {nvfp4(other(3, -10, 5, 448), times), 16, false},
		"coarser":         {nvfp4(other(3, -9, 6, 448), times), 16, false},
		"larger":          {nvfp4(other(3, -9, 5, 449), times), 16, false},
		"between two":     {nvfp4(other(3, -9, 5, 300), times), 16, false},
		"units too small": {nvfp4(other(3, -9, 2, 448), times), 16, false},
		"half units":      {nvfp4(other(3, -8.5, 5, 448), times), 16, false},
		"from 0.3": {nvfp4(func(v value) value {
			unit := v.Logb().Shift(-3).Clip(-9, 5)
			return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(0.3, 448)
		}, times), 16, false},
		"signs of zeros": {nvfp4(func(v value) value {
			return microscaling.RoundE4M3(v.Div(v.Shift(-1).Clip(0, 1)))
		}, times), 16, false},
		"negative":    {nvfp4(func(v value) value { return microscaling.RoundE4M3(v.Neg()) }, times), 16, false},
		"not rounded": {nvfp4(func(v value) value { return v.Clip(0, 448) }, times), 16, false},
		"one for each block": {nvfp4(microscaling.RoundE4M3, func(block, _ value) value {
			return block.Mul(block.Shift(1))
		}), 16, false},
	} {
		t.Run(name, func(t *testing.T) {
			checkCase(t, blockQuantizer(tt.size, tt.make), tt.ok, tt.size, 1e-6) // two scales are multiplied in another order
		})
	}
}

// TestBlocksBeyondFloat32: where a scale, or one over the number of the tensor, is too large for binary32, the codes are NaN: of
// what is finite they say no other number.
func TestBlocksBeyondFloat32(t *testing.T) {
	type value = program.Value
	for name, tt := range map[string]struct {
		make  func(v value) (entries, scale value)
		power int // of the first block
	}{
		"over": {func(v value) (value, value) {
			tensor := v.Builder().Const(math.Exp2(-130))
			s := microscaling.RoundE4M3(v.Abs().MaxRow().Scale(1.0 / 6).Mul(tensor)).Div(tensor)
			return microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven), s
		}, 108},
		"times": {func(v value) (value, value) {
			tensor := v.Builder().Const(math.Exp2(121))
			s := microscaling.RoundE4M3(v.Abs().MaxRow().Div(tensor).Scale(3)).Mul(tensor)
			return v.Sign().Scale(0.5), s
		}, 111},
	} {
		t.Run(name, func(t *testing.T) {
			f, ok := factor.Blocks(blockQuantizer(factor.BlockE4M3, tt.make), "value")
			if !ok {
				t.Fatal("not factored")
			}
			x := reference.Tensor{Type: f.Inputs[0].Type}
			for i := range blockRows * blockLength {
				x.Floats = append(x.Floats, math.Ldexp(float64(i%16+1)/16, tt.power+4+i/16))
			}
			out, err := reference.Run32(f, map[string]reference.Tensor{"x": x})
			if err != nil {
				t.Fatal(err)
			}
			broken := 0
			for i, got := range unblocked(t, out, factor.BlockE4M3) {
				if want := out["value"].Floats[i]; math.IsNaN(got) {
					broken++
				} else if got != want {
					t.Errorf("value %d of %g is %g, its codes say %g", i, x.Floats[i], want, got)
				}
			}
			if broken == 0 {
				t.Error("no code is NaN")
			}
		})
	}
}
