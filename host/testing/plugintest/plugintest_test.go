package plugintest

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestMachines runs one program with every element type on every machine.
func TestMachines(t *testing.T) {
	b := program.NewBuilder("types")
	x := b.Input("x", program.FloatType(2, 2))
	n := b.Input("n", program.Type{DType: program.Int, Shape: []int{2}})
	u := b.Input("u", program.Type{DType: program.Uint})
	on := b.Input("on", program.Type{DType: program.Bool, Shape: []int{2, 1}})
	b.Output("x", on.Select(x.Scale(0.1), x))
	b.Output("n", n.Neg())
	b.Output("u", u.Shl(b.ConstUint(1)))
	b.Output("off", on.Not())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	Each(t, func(t *testing.T, m Bench) {
		out := m.Run(t, p, map[string]reference.Tensor{
			"x": reference.Floats([]float64{1, 2, math.Inf(1), 4}, 2, 2),
			"n": reference.Ints([]int32{-7, math.MaxInt32}, 2),
			"u": reference.Uint(1 << 31), "on": reference.Bools([]bool{true, false}, 2, 1),
		})
		tenth := 0.1
		if !m.Double() {
			tenth = float64(float32(0.1))
		}
		Near(t, "x", out["x"].Float64s(), []float64{tenth, 2 * tenth, math.Inf(1), 4}, 0)
		Near(t, "n", out["n"].Float64s(), []float64{7, -math.MaxInt32}, 0)
		Near(t, "u", out["u"].Float64s(), []float64{0}, 0)
		Near(t, "off", out["off"].Float64s(), []float64{0, 1}, 0)
	})
}

// descent is an optimizer that counts its steps. Its direction is gradient + x + (count − step).
type descent struct{}

func (descent) Describe() sdk.Description { return sdk.Description{Name: "descent"} }

func (descent) Init(b *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"count": b.Const(0)}, nil
}

func (descent) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	count := in.State["count"].Shift(1)
	return in.Gradient.Add(in.X).Add(count.Sub(in.Step)), sdk.State{"count": count}, nil
}

// TestSteps checks that an optimizer's own count of steps equals the step that it is given, and
// that each update gets x as the previous one left it.
func TestSteps(t *testing.T) {
	gradients := golden.Array{Shape: []int{2, 1}, Data: []float64{2, 4}}
	Each(t, func(t *testing.T, m Bench) {
		run := m.Train(t, descent{}, nil, Matrix(1), []float64{8})
		// 8 − ½·(2 + 8) = 3 → 3 − ½·(4 + 3) = −0.5
		Near(t, "x", run.Steps(t, gradients, 0.5), []float64{-0.5}, 0)
		Near(t, "count", run.State("count"), []float64{2}, 0)
	})
}

// witness is an optimizer whose state records the inputs of each part of an update. Its direction
// is the result of the last refresh.
type witness struct{}

func (witness) Describe() sdk.Description { return sdk.Description{Name: "witness"} }

func (witness) Init(b *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": b.Zeros(1), "kept": b.Zeros(1)}, nil
}

func (witness) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": in.X.Add(in.Gradient)}, nil
}

func (witness) Refresh(
	b *program.Builder, in sdk.RefreshInput, first bool, _ sdk.Tensor,
) (sdk.State, error) {
	if first {
		return sdk.State{"kept": in.State["seen"].Add(in.Step)}, nil
	}
	return sdk.State{"kept": in.State["seen"].Add(in.State["kept"]).Scale(1.0 / 3)}, nil
}

func (witness) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 2} }

func (witness) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.State["kept"], sdk.State{"seen": in.State["seen"], "kept": in.State["kept"]}, nil
}

// TestRefresh compares Observe, Refresh and Update with a calculation by hand.
func TestRefresh(t *testing.T) {
	Each(t, func(t *testing.T, m Bench) {
		third := func(x float64) float64 { // results are stored in the machine's precision
			if m.Double() {
				return x / 3
			}
			return float64(float32(x / 3))
		}
		run := m.Train(t, witness{}, nil, Vector(1), []float64{8})
		var trace []float64
		for _, g := range []float64{1, 2, 3, 11} {
			run.Update(t, []float64{g}, 1)
			trace = append(trace, run.X()...)
		}
		// 8; seen 10, kept 12, 8 − 12; −4 − 12; seen −5, kept (−5 + 12)/3.
		Near(t, "x", trace, []float64{8, -4, -16, -16 - third(7)}, 1e-7)
		Near(t, "kept", run.State("kept"), []float64{third(7)}, 1e-15)
	})
}

// TestHadamard checks that the transform is its own inverse, and that its first element is the
// scaled sum.
func TestHadamard(t *testing.T) {
	x := Normal(1, 2, 16)
	turned := Hadamard(x, 8)
	Near(t, "back", Hadamard(turned, 8).Data, x.Data, 1e-15)
	sum := 0.0
	for _, v := range x.Data[8:16] {
		sum += v
	}
	Near(t, "the sum of the second run", turned.Data[8:9], []float64{sum / math.Sqrt(8)}, 1e-15)
}
