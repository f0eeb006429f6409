package reference_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestResultsAreTheCallers: memory that is used again never belongs to a result, nor to
// an input, also when values share memory or are results twice.
func TestResultsAreTheCallers(t *testing.T) {
	b := program.NewBuilder("shared")
	x := b.Input("x", program.FloatType(2, 3))
	y := x.Scale(2)
	b.Output("x", x)
	b.Output("y", y)
	b.Output("again", y)
	b.Output("flat", y.Reshape(6))
	b.Output("constant", b.Table([]float64{1, 2, 3}, 3))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{"x": reference.Floats([]float64{1, 2, 3, 4, 5, 6}, 2, 3)}
	for range 3 {
		out, err := reference.Run(p, in)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]float64{"x": {1, 2, 3, 4, 5, 6}, "y": {2, 4, 6, 8, 10, 12}, "again": {2, 4, 6, 8, 10, 12}, "flat": {2, 4, 6, 8, 10, 12}, "constant": {1, 2, 3}} {
			near(t, name, out[name], reference.Floats(want, out[name].Type.Shape...), 0)
			for i := range out[name].Floats {
				out[name].Floats[i] = math.NaN()
			}
		}
	}
}

// TestMemoryIsUsedAgain: many executions of many programs, in turn, give each time what
// the first one gave.
func TestMemoryIsUsedAgain(t *testing.T) {
	var cases []randprog.Case
	var want []map[string]reference.Tensor
	for range 3 {
		for seed := range uint64(50) {
			if len(cases) == int(seed) {
				cases = append(cases, randprog.New(seed, randprog.Options{}))
			}
			out, err := reference.Run(cases[seed].Program, cases[seed].Inputs)
			if err != nil {
				t.Fatal(err)
			}
			if len(want) == int(seed) {
				want = append(want, out)
				continue
			}
			for name, v := range out {
				for i, f := range v.Float64s() {
					if w := want[seed][name].Float64s()[i]; math.Float64bits(f) != math.Float64bits(w) {
						t.Fatalf("seed %d: element %d of %s is %v, was %v", seed, i, name, f, w)
					}
				}
			}
		}
	}
}

// TestRunFast: products and orthonormal columns to the precision of binary32, the rest
// in binary64.
func TestRunFast(t *testing.T) {
	b := program.NewBuilder("fast")
	x := b.Input("x", program.FloatType(4, 20, 20))
	b.Output("product", matrices(x, x))
	q := x.QR()
	b.Output("gram", matrices(q.Transpose(0, 2, 1), q))
	b.Output("sum", x.Shift(1e-12))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]float64, 1600)
	for i := range data {
		data[i] = math.Sin(float64(i * i))
	}
	in := map[string]reference.Tensor{"x": reference.Floats(data, 4, 20, 20)}
	want, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := reference.RunFast(p, in)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "sum", got["sum"], want["sum"], 0)
	near(t, "product", got["product"], want["product"], 20*20*0x1p-24)
	near(t, "QᵀQ", got["gram"], identities(4, 20), 2e-6)
	if got["product"].Floats[0] == want["product"].Floats[0] {
		t.Error("the product was computed in binary64")
	}
}
