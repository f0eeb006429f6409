package lower_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// bounds are those within which a clamp may put NaN.
type bounds struct{ lo, hi float64 }

// checkClamped compares the device with the oracle. Where the oracle has NaN, an
// output with bounds is NaN or within them.
func checkClamped(t *testing.T, p *program.Program, inputs map[string]reference.Tensor, limits map[string]bounds) {
	t.Helper()
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range run(t, p, inputs) {
		limit, ok := limits[name]
		for i, v := range want[name].Floats {
			if g := got.Floats[i]; ok && math.IsNaN(v) && g >= limit.lo && g <= limit.hi {
				got.Floats[i] = v
			}
		}
		compare(t, name, tolerance{}, got, want[name], nil)
	}
}

// Every length meets the backend's vectorized body and its rest with NaN.
func TestClamp(t *testing.T) {
	for _, shape := range [][]int{{}, {1}, {47}, {1, 1}, {3, 5, 7}, {2048, 9}} {
		x := operand(program.Float, shape...)
		for _, limit := range []bounds{{-2, 1.5}, {0.1, 0.1}, {math.Inf(-1), 3}, {-1e-40, math.MaxFloat32}, {math.Inf(-1), math.Inf(1)}} {
			rounded := bounds{float64(float32(limit.lo)), float64(float32(limit.hi))}
			p := build(t, func(b *program.Builder) {
				v, lo, hi := b.Input("x", x.Type), b.Input("lo", program.FloatType()), b.Input("hi", program.FloatType())
				b.Output("constant", v.Clip(limit.lo, limit.hi))
				b.Output("given", v.Clamp(lo, hi))
			})
			inputs := map[string]reference.Tensor{"x": x, "lo": reference.Float(rounded.lo), "hi": reference.Float(rounded.hi)}
			t.Run(fmt.Sprint(shape, limit), func(t *testing.T) {
				checkClamped(t, p, inputs, map[string]bounds{"constant": rounded, "given": rounded})
			})
		}
	}
}

// What a clamp does to NaN cannot be seen behind a factor that is NaN too, and the
// gradient there is zero.
func TestClampPoisoned(t *testing.T) {
	x := operand(program.Float, 47, 9)
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		poison := v.Sub(v) // zero for numbers, NaN for others
		q := v.Round().Clip(-8, 7)
		b.Output("value", q.Add(poison))
		b.Output("near", v.Sub(q).Abs().Le(b.Const(0.5)))
		b.Output("inside", v.Eq(v.Clip(-8, 7)))
	})
	check(t, tolerance{}, p, map[string]reference.Tensor{"x": x})
}

// Rounding in all forms: known to be small, delayed behind a clip, used twice, neither.
func TestRounding(t *testing.T) {
	data := append([]float64(nil), specials...)
	for i := range 200 {
		data = append(data, float64(i-100)/2, math.Nextafter(float64(i-100)/2, inf), float64(i)*20971.525-2e6)
	}
	x := reference.Floats(data, len(data))
	p := build(t, func(b *program.Builder) {
		v := b.Input("x", x.Type)
		b.Output("round", v.Round())
		b.Output("clipped", v.Scale(0.5).Round().Clip(-8, 7))
		b.Output("strict", v.Scale(0.5).Round().Max(b.Const(-8)).Min(b.Const(7)))
		b.Output("unordered", v.Scale(0.25).Round().Min(b.Const(7)).Max(b.Const(-8)))
		b.Output("fraction", v.Scale(3).Round().Clip(-1.5, 2.5))
		b.Output("before", v.Clip(-4194304, 4194304).Round())
		b.Output("twice", v.Scale(0.75).Round().Clip(-20, 20).Clip(-8, 30))
		r := v.Scale(5).Round()
		b.Output("both", r.Clip(-8, 7).Add(r))
		b.Output("half", v.Scale(7).Round().Max(b.Const(0)))
	})
	checkClamped(t, p, map[string]reference.Tensor{"x": x}, map[string]bounds{
		"clipped": {-8, 7}, "fraction": {-1.5, 2.5}, "before": {-4194304, 4194304}, "twice": {-8, 20},
	})
}

func TestClampFloat64(t *testing.T) {
	x := reference.Floats([]float64{-1e300, 1e-300, 0.1, inf, nan}, 5)
	p := build(t, func(b *program.Builder) { b.Output("y", b.Input("x", x.Type).Clip(0.1, 0.3)) })
	got := runIn(t, dtypes.Float64, p, map[string]reference.Tensor{"x": x})["y"].Floats
	for i, want := range []float64{0.1, 0.1, 0.1, 0.3} {
		if got[i] != want {
			t.Errorf("element %d: got %v, want %v", i, got[i], want)
		}
	}
	if got[4] < 0.1 || got[4] > 0.3 {
		t.Errorf("NaN gives %v", got[4])
	}
}
