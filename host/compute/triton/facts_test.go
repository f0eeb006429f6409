package triton_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestKnown checks that code that is omitted or shortened because of known facts changes no result,
// also close to the limits of these facts.
func TestKnown(t *testing.T) {
	const rows, length = 64, 32
	maskedBy := func(v program.Value, mask uint32) program.Value {
		return v.Bitcast(program.Uint).And(v.Builder().ConstUint(mask)).Bitcast(program.Float)
	}
	masked := func(v program.Value) program.Value { return maskedBy(v, 0x7F800000) }
	for _, tt := range []struct {
		name   string
		absent string // from the text if a fact was used
		of     func(x program.Value) program.Value
	}{
		{"E2M1", "rcp.approx",
			func(x program.Value) program.Value { return microscaling.RoundE2M1(x, microscaling.TiesEven) }},
		{"E2M1, ties away", "rcp.approx",
			func(x program.Value) program.Value { return microscaling.RoundE2M1(x, microscaling.TiesAway) }},
		{"E4M3", "__nv_ldexpf", microscaling.RoundE4M3},
		{"E4M3 of rows", "__nv_ldexpf",
			func(x program.Value) program.Value {
				return microscaling.RoundE4M3(x.Abs().MaxRow()).Mul(x.Sign())
			}},
		// so that quotients are above 4
		{"a power that is too small", "", func(x program.Value) program.Value {
			x = x.Clip(-6, 6)
			return x.Div(masked(x).Clip(1, 2).Scale(0.5)).Clip(-4, 4)
		}},
		{"no power", "", func(x program.Value) program.Value {
			return x.Div(masked(x.Clip(-6, 6)).Clip(1, 3))
		}},
		{"a mask that rounds to that of powers", "", func(x program.Value) program.Value {
			x = x.Clip(-6, 6)
			return x.Div(maskedBy(x, 0x7F800040).Clip(1, 4)).Clip(-2, 2)
		}},
		{"a power of something else", "", func(x program.Value) program.Value {
			return x.Clip(-6, 6).Div(masked(x.Clip(-1, 1)).Clip(0.25, 1)).Clip(-2, 2)
		}},
		{"exponents below all", "",
			func(x program.Value) program.Value { return x.Logb().Clip(-140, 100) }},
		{"exponents that go to another place", "", func(x program.Value) program.Value {
			return x.Abs().MaxRow().Logb().Broadcast([]int{rows, length}, nil).Clip(-9, 9)
		}},
		{"small exponents", "__nv_ldexpf",
			func(x program.Value) program.Value { return x.Sign().Ldexp(x.Round().Clip(-126, 127)) }},
		{"exponents", "__nv_ldexpf",
			func(x program.Value) program.Value { return x.Sign().Ldexp(x.Round().Clip(-127, 127)) }},
		{"large exponents", "",
			func(x program.Value) program.Value { return x.Sign().Ldexp(x.Round().Clip(-140, 300)) }},
		{"sums of integers times zero", "", func(x program.Value) program.Value {
			zero := x.Clip(-8, 7).Round().ReduceSum(1).Reshape(rows, 1).Scale(0)
			return x.Add(zero.Add(x.Builder().Const(0)))
		}},
		{"sums of large numbers times zero", "", func(x program.Value) program.Value {
			return x.Clip(1e37, 2e37).ReduceSum(1).Reshape(rows, 1).Scale(0)
		}},
		{"exponents of NaN", "", func(x program.Value) program.Value { return x.Sign().Ldexp(x.Sub(x)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := program.NewBuilder("known")
			b.Output("y", tt.of(b.Input("x", program.FloatType(rows, length))))
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			k, err := testkernel.Compile(p, rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.absent != "" && strings.Contains(k.Kernel.Text, tt.absent) {
				t.Errorf("there is %s in the text:\n%s", tt.absent, k.Kernel.Text)
			}
			compareAll(t, k, p, map[string]reference.Tensor{"x": reference.Floats(edges(rows*length), rows,
				length)})
		})
	}
}

// edges returns multiples of 1/4 up to 9, powers of two, their neighbours, zeros and infinities, of
// both signs, and random numbers up to about 2⁹.
func edges(n int) (list []float64) {
	list = []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 0x1p-149, 0x1p-127}
	add := func(x float64) {
		for _, v := range []float32{float32(x), math.Nextafter32(float32(x), 1e30),
			math.Nextafter32(float32(x), 0)} {
			list = append(list, float64(v), -float64(v))
		}
	}
	for i := range 36 {
		add(float64(i+1) / 4)
	}
	for i := -130; i < 128; i += 2 {
		add(math.Ldexp(1, i))
	}
	r := rand.New(rand.NewPCG(37, 1))
	for len(list) < n {
		list = append(list, float64(float32(r.NormFloat64()*math.Exp2(float64(r.IntN(18)-9)))))
	}
	return list[:n]
}
