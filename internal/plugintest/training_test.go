package plugintest

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
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

// TestRefresh follows Observe, Refresh and Update by hand, with decay on either side.
func TestRefresh(t *testing.T) {
	tr := Trajectory{
		Start:     golden.Tensor{Shape: []int{1}, Data: []float64{16}},
		Gradients: golden.Tensor{Shape: []int{4, 1}, Data: []float64{1, 2, 3, 4}},
		Rates:     []float64{1, 1, 1, 1},
		Decay:     0.5,
	}
	last := tr
	last.DecayLast = true
	Each(t, func(t *testing.T, m Machine) {
		third := func(x float64) float64 { // a refresh keeps its result in the machine's precision
			if m.Double {
				return x / 3
			}
			return float64(float32(x / 3))
		}
		// 16 → 8; → 4, seen 6, kept 8, 4 − 8; → −2 − 8; → −5, seen −1, kept (−1+8)/3.
		Near(t, "decay first", m.Optimize(t, witness{}, nil, tr), []float64{8, -4, -10, -5 - third(7)}, 1e-7)
		// 16 → 8; seen 10, kept 12, −4 → −2; −14 → −7; seen −3, kept 3, −10 → −5.
		Near(t, "decay last", m.Optimize(t, witness{}, nil, last), []float64{8, -2, -7, -5}, 1e-7)
	})
}

// TestProblems: the gradients are those of the values, and both minima are at 1.
func TestProblems(t *testing.T) {
	for _, p := range []Problem{Parabola(), Rosenbrock()} {
		if p.Value([]float64{1, 1, 1, 1}) != 0 {
			t.Errorf("%s is not 0 at 1", p.Name)
		}
		x := Normal(1, 6).Data
		for i, want := range p.Gradient(x) {
			const h = 1e-6
			up, down := append([]float64(nil), x...), append([]float64(nil), x...)
			up[i] += h
			down[i] -= h
			if got := (p.Value(up) - p.Value(down)) / (2 * h); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
				t.Errorf("%s: derivative %d is %v, differences give %v", p.Name, i, want, got)
			}
		}
	}
}

// TestProperties: an optimizer that passes, for the checks to be used once here.
func TestProperties(t *testing.T) {
	tensor := sdk.Tensor{Name: "w", Role: sdk.TensorVector, Shape: []int{4}}
	OptimizerProperties(t, descentOnly{}, nil, tensor, 1e-6)
	Descends(t, descentOnly{}, nil, tensor, Parabola(), 0.1, 50, 0.01)
}

// descentOnly is plain gradient descent.
type descentOnly struct{ descent }

func (descentOnly) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

func (descentOnly) Update(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}
