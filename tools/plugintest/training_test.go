package plugintest

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// witness is an optimizer whose state tells what each part of an update saw. Its
// direction is what the last refresh wrote down.
type witness struct{}

func (witness) Describe() sdk.Description { return sdk.Description{Name: "witness"} }

func (witness) Init(b *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": b.Zeros(1), "kept": b.Zeros(1)}, nil
}

func (witness) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": in.X.Add(in.Gradient)}, nil
}

func (witness) Refresh(b *program.Builder, in sdk.RefreshInput, first bool, _ sdk.Tensor) (sdk.State, error) {
	if first {
		return sdk.State{"kept": in.State["seen"].Add(in.Step)}, nil
	}
	return sdk.State{"kept": in.State["seen"].Add(in.State["kept"]).Scale(1.0 / 3)}, nil
}

func (witness) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 2} }

func (witness) Update(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, sdk.State, error) {
	return in.State["kept"], sdk.State{"seen": in.State["seen"], "kept": in.State["kept"]}, nil
}

// TestRefresh follows Observe, Refresh and Update by hand.
func TestRefresh(t *testing.T) {
	Each(t, func(t *testing.T, m Bench) {
		third := func(x float64) float64 { // a refresh keeps its result in the machine's precision
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

// TestHadamard: the plain transform is its own inverse, and its first row the sum.
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
