package factor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// random fails if a smaller share of random programs is factored.
func random(t *testing.T, least float64, try func(rng *rand.Rand) (factored bool)) {
	t.Helper()
	programs, factored := testlevel.Choose[uint64](700, 2000), 0
	for seed := range programs {
		if try(rand.New(rand.NewPCG(seed, 3))) {
			factored++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d of %d", factored, programs)
	if share := float64(factored) / float64(programs); share < least {
		t.Errorf("%.3f of the programs were factored, want at least %g", share, least)
	}
}

// TestRandom: whatever is factored of random compositions is right.
func TestRandom(t *testing.T) {
	random(t, 0.15, func(rng *rand.Rand) bool {
		number := func() float64 { return float64(rng.IntN(33)-16) / float64(int(1)<<rng.IntN(4)) }
		p := quantizer(func(b *program.Builder, x program.Value) (codes, scale program.Value) {
			for range 1 + rng.IntN(7) {
				switch rng.IntN(8) {
				case 0, 1:
					x = x.Round()
				case 2:
					x = x.Floor()
				case 3, 4:
					low := number()
					x = x.Clip(low, low+4*math.Abs(number()))
				case 5:
					x = x.Shift(number())
				case 6:
					x = b.Const(number()).Sub(x)
				case 7:
					x = x.Gt(b.Const(number())).Select(x, b.Const(number()))
				}
			}
			return x, highest(x)
		})
		f, ok := factor.Rows(p, "value")
		if ok {
			rounding(t, p, f)
		}
		if t.Failed() {
			t.Log(f)
		}
		return ok
	})
}

// rounding is check where all codes may be 0.
func rounding(t *testing.T, p, f *program.Program) {
	t.Helper()
	x := reference.Tensor{Type: p.Inputs[0].Type}
	for i := range x.Type.Size() {
		x.Floats = append(x.Floats, float64(i)*1.37-11)
	}
	out, err := reference.Run32(f, map[string]reference.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range out["value"].Floats {
		n, scale := out[factor.OutputIntegers].Floats[i], out[factor.OutputScale].Floats[i/8]
		if n != math.Trunc(n) || math.Abs(n) > 127 || float64(float32(n)*float32(scale)) != want {
			t.Errorf("value %d is %g, its code %g, and the scale of its row %g", i, want, n, scale)
		}
	}
}

// TestRandomBlocks: whatever is factored of random compositions is right.
func TestRandomBlocks(t *testing.T) {
	random(t, 0.04, func(rng *rand.Rand) bool {
		number := func() float64 { return float64(rng.IntN(17)-8) / float64(int(1)<<rng.IntN(3)) }
		p := blockQuantizer(factor.BlockE8M0, func(v program.Value) (entries, scale program.Value) {
			b, s := v.Builder(), power(v)
			x := v.Div(s).Clip(-6, 6)
			r := x
			distance := x.Bitcast(program.Uint).And(b.ConstUint(0x7f800000)).Bitcast(program.Float).Clip(1, 4).Scale(0.5)
			if rng.IntN(2) == 0 {
				x = x.Div(distance)
			}
			for range 1 + rng.IntN(5) {
				switch rng.IntN(9) {
				case 0, 1, 2:
					x = x.Round()
				case 3, 4:
					low := number()
					x = x.Clip(low, low+4*math.Abs(number()))
				case 5:
					x = x.Scale(number())
				case 6:
					x = x.Add(r.Sign().Scale(0.5))
				case 7:
					x = x.Gt(b.Const(number())).Select(x, b.Const(number()))
				case 8:
					x = x.Mul(distance)
				}
			}
			return x, s
		})
		f, ok := factor.Blocks(p, "value")
		if ok {
			roundTrip(t, f)
		}
		if t.Failed() {
			t.Log(f)
		}
		return ok
	})
}

// roundTrip is checkBlocks where values may all be 0, on numbers that tell neighbours apart.
func roundTrip(t *testing.T, f *program.Program) {
	t.Helper()
	x := reference.Tensor{Type: f.Inputs[0].Type}
	for i := range blockRows * blockLength {
		x.Floats = append(x.Floats, float64(float32(float64(i-100)*0.0731)))
	}
	out, err := reference.Run32(f, map[string]reference.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	again := unblocked(t, out, factor.BlockE8M0)
	for i, want := range out["value"].Floats {
		if got := again[i]; got != want {
			t.Errorf("value %d is %g, its codes say %g", i, want, got)
		}
	}
}
