package cage

import (
	"fmt"
	"log"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// lotionResult holds the results of a step, in float64.
type lotionResult struct {
	gradient, fisher      []float64
	regularizer, variance float64
}

// onGrid returns LOTION with this number of grid steps up to the largest magnitude: a power of two,
// or one less.
func onGrid(coeff, decay, steps float64) LOTION {
	bits := 1 + math.Ceil(math.Log2(steps))
	m := LOTION{Coeff: coeff, FisherDecay: decay, Bits: int(bits), Denom: "power"}
	if m.steps() != steps {
		m.Bits, m.Denom = int(1+math.Log2(steps+1)), "symmetric"
	}
	if m.steps() != steps {
		panic(fmt.Sprint("no grid has so many steps: ", steps))
	}
	return m
}

// lotionProgram returns one step of a tensor with all its results.
func lotionProgram(m LOTION, shape ...int) (*program.Program, error) {
	b := program.NewBuilder("lotion")
	tensor := program.FloatType(shape...)
	x, g, fisher := b.Input("x", tensor), b.Input("gradient", tensor), b.Input("fisher", tensor)
	s := &writer{b: b, x: x, state: map[string]program.Value{fisherState: fisher}}
	b.Output("gradient", m.gradient(s, g))
	b.Output("fisher", s.state[fisherState])
	size, delta := m.cells(b, x)
	spread := delta.Mul(b.Const(1).Sub(delta))
	b.Output("regularizer", sum(fisher.Mul(spread)).Mul(size).Mul(size).Scale(m.Coeff/2))
	b.Output("variance", sum(spread).Mul(size).Mul(size))
	return b.Build()
}

// runLotion executes one step of a tensor of the given shape; without one, of a vector.
func runLotion(
	t *testing.T, machine plugintest.Bench, m LOTION, x, g, fisher []float64, shape ...int,
) lotionResult {
	t.Helper()
	if len(shape) == 0 {
		shape = []int{len(x)}
	}
	p, err := lotionProgram(m, shape...)
	if err != nil {
		t.Fatal(err)
	}
	out := machine.Run(t, p, map[string]reference.Tensor{
		"x": reference.Floats(x, shape...), "gradient": reference.Floats(g, shape...),
		"fisher": reference.Floats(fisher, shape...),
	})
	return lotionResult{out["gradient"].Float64s(), out["fisher"].Float64s(),
		out["regularizer"].Scalar(), out["variance"].Scalar()}
}

// TestLotionGolden compares regularizer, variances and gradient with the golden values. The
// variance of an element is the regularizer for an F that is 1 there and 0 elsewhere.
func TestLotionGolden(t *testing.T) {
	f := golden.Load(t, "testdata/baselines.json")
	// In float32, Δ is a difference of numbers up to 8, so its error is about 5e-7. Variances of up to
	// ¼ s² have the same error in units of s².
	const single = 3e-6
	ran := 0
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			if !c.Params.Has("denom") {
				t.Skip("another method's")
			}
			ran++
			m := onGrid(c.Params.Float("coeff"), 0.999, c.Params.Float("denom"))
			x, fisher := c.Inputs.Array("x").Data, c.Inputs.Array("fisher").Data
			zeros := make([]float64, len(x))
			got := runLotion(t, machine, m, x, zeros, fisher)
			machine.Close(c.Expected, "grad", got.gradient, single)
			machine.Close(c.Expected, "reg", []float64{got.regularizer}, single)
			var variances []float64
			for i := range x {
				one := make([]float64, len(x))
				one[i] = 1
				variances = append(variances, runLotion(t, machine, onGrid(2, 0, m.steps()), x, zeros,
					one).regularizer)
			}
			machine.Close(c.Expected, "variance", variances, single)
			total := 0.0
			for _, v := range c.Expected.Array("variance").Data {
				total += v
			}
			plugintest.Near(t, "Σ σ²", []float64{got.variance}, []float64{total}, single)
		})
	})
	if ran != 2*2 {
		t.Errorf("%d cases ran, want 2 on two machines", ran)
	}
}

// TestLotionSteps checks the largest magnitude of a tensor in steps of its grid.
func TestLotionSteps(t *testing.T) {
	for _, d := range []struct {
		denom string
		bits  int
		want  float64
	}{{"power", 4, 8}, {"symmetric", 4, 7}, {"power", 2, 2}, {"symmetric", 2, 1},
		{"power", 16, 32768}} {
		if got := (LOTION{Bits: d.bits, Denom: d.denom}).steps(); got != d.want {
			t.Errorf("%s at %d bits: %g, want %g", d.denom, d.bits, got, d.want)
		}
	}
}

// TestLotionOrder checks that the regularizer uses the previous F, and that the next F uses the
// gradient without the regularizer.
func TestLotionOrder(t *testing.T) {
	m := onGrid(100, 0.75, 4)
	x, g, fisher := []float64{4, 1.25}, []float64{2, -4}, []float64{0, 8}
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		got := runLotion(t, machine, m, x, g, fisher)
		// s = 1, Δ = ¼
		plugintest.Near(t, "gradient", got.gradient, []float64{2, -4 + 50*8*(1-2*0.25)}, 0)
		plugintest.Near(t, "fisher", got.fisher, []float64{0.25 * 4, 0.75*8 + 0.25*16}, 0)
	})
}

// TestLotionFisherHasNoBiasCorrection checks that F is (1 − βᵗ)·g² under a constant gradient.
func TestLotionFisherHasNoBiasCorrection(t *testing.T) {
	m := DefaultLOTION
	fisher := []float64{0}
	for step := 1; step <= 50; step++ {
		fisher = runLotion(t, plugintest.Reference(), m, []float64{1}, []float64{3}, fisher).fisher
		want := 9 * (1 - math.Pow(m.FisherDecay, float64(step)))
		plugintest.Near(t, "fisher", fisher, []float64{want}, 1e-12)
	}
}

// TestLotionGrid checks that there is no variance on the grid, where the derivative is the
// right-hand one. The largest weight is on the grid at any magnitude and precision.
func TestLotionGrid(t *testing.T) {
	values := plugintest.Normal(1, 40)
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		for _, denominator := range []float64{1, 3, 7, 8, 127} {
			m := onGrid(2, 0, denominator)
			for _, v := range values.Data {
				top := math.Abs(v)
				got := runLotion(t, machine, m, []float64{top, -top, 0}, make([]float64, 3), []float64{1, 1, 1})
				if got.regularizer != 0 || got.variance != 0 {
					t.Fatalf("±%v, denominator %v: regularizer %v, variance %v, want 0", top, denominator,
						got.regularizer, got.variance)
				}
				s := top / denominator
				plugintest.Near(t, "derivative to the right", got.gradient, []float64{s, s, s}, 2e-7)
			}
		}
	})
}

// TestLotionSymmetry checks that reflecting weights at the centers of their cells, or at zero,
// keeps the regularizer and changes the gradient's sign.
func TestLotionSymmetry(t *testing.T) {
	m := onGrid(3, 0, 8)
	x, fisher := []float64{8, 0.25, -2.375, 5.0625, -7.5}, []float64{0, 1, 2, 3, 4}
	zeros := make([]float64, len(x))
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		want := runLotion(t, machine, m, x, zeros, fisher)
		for name, reflect := range map[string]func(v float64) float64{
			"zero":     func(v float64) float64 { return -v },
			"the cell": func(v float64) float64 { return 2*math.Floor(v) + 1 - v },
		} {
			mirrored := append([]float64{8}, make([]float64, len(x)-1)...)
			for i := 1; i < len(x); i++ {
				mirrored[i] = reflect(x[i])
			}
			got := runLotion(t, machine, m, mirrored, zeros, fisher)
			plugintest.Near(t, "gradient, in "+name, got.gradient, plugintest.Times(-1, want.gradient), 0)
			if got.regularizer != want.regularizer || got.variance != want.variance {
				t.Errorf("in %s: regularizer and variance are %v, %v, want %v, %v", name, got.regularizer,
					got.variance, want.regularizer, want.variance)
			}
		}
	})
}

// TestLotionDifferences compares the gradient with differences of the regularizer, for
// weights that are off the grid and not the largest.
func TestLotionDifferences(t *testing.T) {
	const h = 1e-6
	m := onGrid(5, 0, 7)
	x, g := plugintest.Normal(2, 4, 8), plugintest.Normal(3, 4, 8)
	x.Data[0] = 4 // the largest magnitude by far
	fisher := plugintest.Normal(4, 4, 8)
	for i, v := range fisher.Data {
		fisher.Data[i] = v * v
	}
	at := func(i int, d float64) lotionResult {
		moved := x.Clone()
		moved.Data[i] += d
		return runLotion(t, plugintest.Reference(), m, moved.Data, g.Data, fisher.Data, x.Shape...)
	}
	base := at(0, 0)
	for i := 1; i < len(x.Data); i++ {
		want := g.Data[i] + (at(i, h).regularizer-at(i, -h).regularizer)/(2*h)
		if off := math.Abs(base.gradient[i] - want); off > 1e-7 {
			t.Errorf("element %d: gradient %v, difference quotient %v", i, base.gradient[i], want)
		}
	}
}

// TestLotionNothingToDo checks that, for zeros, without strength, or before F has seen a gradient,
// the gradient is the task's and the regularizer 0.
func TestLotionNothingToDo(t *testing.T) {
	x, g, fisher := []float64{0.3, -1, 0.7}, []float64{1, -2, 3}, []float64{5, 6, 7}
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		for name, got := range map[string]lotionResult{
			"zeros":       runLotion(t, machine, DefaultLOTION, make([]float64, 3), g, fisher),
			"no strength": runLotion(t, machine, onGrid(0, 0.9, 8), x, g, fisher),
			"first step":  runLotion(t, machine, DefaultLOTION, x, g, make([]float64, 3)),
		} {
			plugintest.Near(t, name+": gradient", got.gradient, g, 0)
			if got.regularizer != 0 {
				t.Errorf("%s: the regularizer is %v, want 0", name, got.regularizer)
			}
		}
	})
}

// ExampleLOTION uses a grid of step 1 for weights up to 8. Halfway between two grid points, the
// variance of randomized rounding is largest and the regularizer is flat; elsewhere, it pulls the
// weight to the nearer point.
func ExampleLOTION() {
	p, err := lotionProgram(DefaultLOTION, 4)
	if err != nil {
		log.Fatal(err)
	}
	out, err := reference.Run(p, map[string]reference.Tensor{
		"x":        reference.Floats([]float64{8, 2.25, 2.5, 2.75}, 4),
		"gradient": reference.Floats([]float64{0, 0, 0, 0}, 4),
		"fisher":   reference.Floats([]float64{0, 1e-3, 1e-3, 1e-3}, 4),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("gradient:", out["gradient"].Float64s())
	fmt.Printf("regularizer: %.3f, variance: %.3f\n", out["regularizer"].Scalar(),
		out["variance"].Scalar())
	// Output:
	// gradient: [0 1 0 -1]
	// regularizer: 1.250, variance: 0.625
}
