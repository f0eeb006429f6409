package lotion

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// result is what a step returns, in float64.
type result struct {
	gradient, fisher      []float64
	regularizer, variance float64
}

// run executes one step of a tensor of the given shape; without one, of a vector.
func run(t *testing.T, machine plugintest.Machine, m Method, x, g, fisher []float64, shape ...int) result {
	t.Helper()
	if len(shape) == 0 {
		shape = []int{len(x)}
	}
	p, err := m.Program("w", shape...)
	if err != nil {
		t.Fatal(err)
	}
	out := machine.Run(t, p, map[string]reference.Tensor{
		InputX: reference.Floats(x, shape...), InputGradient: reference.Floats(g, shape...), InputFisher: reference.Floats(fisher, shape...),
	})
	return result{out[OutputGradient].Float64s(), out[OutputFisher].Float64s(), out[OutputRegularizer].Scalar(), out[OutputVariance].Scalar()}
}

// TestGolden compares regularizer, variances and gradient with the golden values. A
// variance is read off the regularizer that an F of 1 at one element alone gives.
func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/baselines.json")
	// Binary32: Δ is a difference of numbers up to 8, so its error is about 5e-7,
	// and variances of up to ¼ s² differ by as much of s².
	const single = 3e-6
	ran := 0
	plugintest.Each(t, func(t *testing.T, machine plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			if !c.Params.Has("denom") {
				t.Skip("another method's")
			}
			ran++
			m := Method{Coeff: c.Params.Float("coeff"), FisherDecay: 0.999, Denominator: c.Params.Float("denom")}
			x, fisher := c.Inputs.Tensor("x").Data, c.Inputs.Tensor("fisher").Data
			zeros := make([]float64, len(x))
			got := run(t, machine, m, x, zeros, fisher)
			machine.Close(c.Expected, "grad", got.gradient, single)
			machine.Close(c.Expected, "reg", []float64{got.regularizer}, single)
			var variances []float64
			for i := range x {
				one := make([]float64, len(x))
				one[i] = 1
				variances = append(variances, run(t, machine, Method{2, 0, m.Denominator}, x, zeros, one).regularizer)
			}
			machine.Close(c.Expected, "variance", variances, single)
			total := 0.0
			for _, v := range c.Expected.Tensor("variance").Data {
				total += v
			}
			plugintest.Near(t, "Σ σ²", []float64{got.variance}, []float64{total}, single)
		})
	})
	if ran != 2*2 {
		t.Errorf("%d cases ran, want 2 on two machines", ran)
	}
}

// TestOrder: the regularizer uses F as it comes in; the next F is made of the
// gradient as it comes in.
func TestOrder(t *testing.T) {
	m := Method{Coeff: 100, FisherDecay: 0.75, Denominator: 4}
	x, g, fisher := []float64{4, 1.25}, []float64{2, -4}, []float64{0, 8}
	plugintest.Each(t, func(t *testing.T, machine plugintest.Machine) {
		got := run(t, machine, m, x, g, fisher)
		plugintest.Near(t, "gradient", got.gradient, []float64{2, -4 + 50*8*(1-2*0.25)}, 0) // s = 1, Δ = ¼
		plugintest.Near(t, "fisher", got.fisher, []float64{0.25 * 4, 0.75*8 + 0.25*16}, 0)
	})
}

// TestFisherHasNoBiasCorrection: under a constant gradient F is (1 − βᵗ)·g².
func TestFisherHasNoBiasCorrection(t *testing.T) {
	m := Default
	fisher := []float64{0}
	for step := 1; step <= 50; step++ {
		fisher = run(t, plugintest.Oracle(), m, []float64{1}, []float64{3}, fisher).fisher
		want := 9 * (1 - math.Pow(m.FisherDecay, float64(step)))
		plugintest.Near(t, "fisher", fisher, []float64{want}, 1e-12)
	}
}

// TestGrid: on the grid there is no variance, and the derivative is that to the
// right. The largest weight lies on the grid at any magnitude and in any precision.
func TestGrid(t *testing.T) {
	values := plugintest.Normal(1, 200)
	plugintest.Each(t, func(t *testing.T, machine plugintest.Machine) {
		for _, denominator := range []float64{1, 3, 7, 8, 127} {
			m := Method{Coeff: 2, Denominator: denominator}
			for _, v := range values.Data {
				top := math.Abs(v)
				got := run(t, machine, m, []float64{top, -top, 0}, make([]float64, 3), []float64{1, 1, 1})
				if got.regularizer != 0 || got.variance != 0 {
					t.Fatalf("±%v, denominator %v: regularizer %v, variance %v, want 0", top, denominator, got.regularizer, got.variance)
				}
				s := top / denominator
				plugintest.Near(t, "derivative to the right", got.gradient, []float64{s, s, s}, 2e-7)
			}
		}
	})
}

// TestSymmetry: reflecting a weight in the middle of its cell, or all weights in
// zero, keeps the regularizer and turns the gradient's sign.
func TestSymmetry(t *testing.T) {
	m := Method{Coeff: 3, Denominator: 8}
	x, fisher := []float64{8, 0.25, -2.375, 5.0625, -7.5}, []float64{0, 1, 2, 3, 4}
	zeros := make([]float64, len(x))
	plugintest.Each(t, func(t *testing.T, machine plugintest.Machine) {
		want := run(t, machine, m, x, zeros, fisher)
		for name, reflect := range map[string]func(v float64) float64{
			"zero":     func(v float64) float64 { return -v },
			"the cell": func(v float64) float64 { return 2*math.Floor(v) + 1 - v },
		} {
			mirrored := append([]float64{8}, make([]float64, len(x)-1)...)
			for i := 1; i < len(x); i++ {
				mirrored[i] = reflect(x[i])
			}
			got := run(t, machine, m, mirrored, zeros, fisher)
			plugintest.Near(t, "gradient, in "+name, got.gradient, plugintest.Times(-1, want.gradient), 0)
			if got.regularizer != want.regularizer || got.variance != want.variance {
				t.Errorf("in %s: regularizer and variance are %v, %v, want %v, %v", name, got.regularizer, got.variance, want.regularizer, want.variance)
			}
		}
	})
}

// TestDifferences compares the gradient with differences of the regularizer, for
// weights that are off the grid and not the largest.
func TestDifferences(t *testing.T) {
	const h = 1e-6
	m := Method{Coeff: 5, Denominator: 7}
	x, g := plugintest.Normal(2, 4, 8), plugintest.Normal(3, 4, 8)
	x.Data[0] = 4 // the largest by far: 4 is beyond the others
	fisher := plugintest.Normal(4, 4, 8)
	for i, v := range fisher.Data {
		fisher.Data[i] = v * v
	}
	at := func(i int, d float64) result {
		moved := x.Clone()
		moved.Data[i] += d
		return run(t, plugintest.Oracle(), m, moved.Data, g.Data, fisher.Data, x.Shape...)
	}
	base := at(0, 0)
	for i := 1; i < len(x.Data); i++ {
		want := g.Data[i] + (at(i, h).regularizer-at(i, -h).regularizer)/(2*h)
		if off := math.Abs(base.gradient[i] - want); off > 1e-7 {
			t.Errorf("element %d: gradient %v, difference quotient %v", i, base.gradient[i], want)
		}
	}
}

// TestNothingToDo: zeros have no regularizer; without strength, or before F has seen
// a gradient, the gradient is the task's.
func TestNothingToDo(t *testing.T) {
	x, g, fisher := []float64{0.3, -1, 0.7}, []float64{1, -2, 3}, []float64{5, 6, 7}
	plugintest.Each(t, func(t *testing.T, machine plugintest.Machine) {
		for name, got := range map[string]result{
			"zeros":       run(t, machine, Default, make([]float64, 3), g, fisher),
			"no strength": run(t, machine, Method{0, 0.9, 8}, x, g, fisher),
			"first step":  run(t, machine, Default, x, g, make([]float64, 3)),
		} {
			plugintest.Near(t, name+": gradient", got.gradient, g, 0)
			if got.regularizer != 0 {
				t.Errorf("%s: the regularizer is %v, want 0", name, got.regularizer)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	if err := Default.Check(); err != nil {
		t.Error(err)
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		m    Method
		want string
	}{
		{Method{-1, 0.9, 8}, "coeff -1"}, {Method{nan, 0.9, 8}, "coeff NaN"}, {Method{inf, 0.9, 8}, "coeff +Inf"},
		{Method{1, -0.1, 8}, "fisher decay -0.1"}, {Method{1, 1, 8}, "fisher decay 1"}, {Method{1, nan, 8}, "fisher decay NaN"},
		{Method{1, 0.9, 0}, "denominator 0"}, {Method{1, 0.9, nan}, "denominator NaN"}, {Method{1, 0.9, inf}, "denominator +Inf"},
	} {
		if err := c.m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.m, err, c.want)
		}
		if _, err := c.m.Program("w", 2); err == nil {
			t.Errorf("%+v: a program was written", c.m)
		}
	}
}
