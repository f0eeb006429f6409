package plugintest

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
)

// Problem is a function of a tensor that an optimizer must bring down.
type Problem struct {
	Name string
	// Value is f(x); Gradient is its gradient.
	Value    func(x []float64) float64
	Gradient func(x []float64) []float64
}

// Parabola is ½·Σ cᵢ·(xᵢ − 1)², where the curvatures c run from 1 to 10.
func Parabola() Problem {
	curvature := func(i, n int) float64 { return 1 + 9*float64(i)/float64(max(n-1, 1)) }
	return Problem{
		Name: "parabola",
		Value: func(x []float64) float64 {
			sum := 0.0
			for i, v := range x {
				sum += curvature(i, len(x)) / 2 * (v - 1) * (v - 1)
			}
			return sum
		},
		Gradient: func(x []float64) []float64 {
			g := make([]float64, len(x))
			for i, v := range x {
				g[i] = curvature(i, len(x)) * (v - 1)
			}
			return g
		},
	}
}

// Rosenbrock is Σ (1 − a)² + 100·(b − a²)² over the pairs a, b of neighbouring
// elements (Rosenbrock 1960): a curved valley to the minimum at 1.
func Rosenbrock() Problem {
	return Problem{
		Name: "Rosenbrock",
		Value: func(x []float64) float64 {
			sum := 0.0
			for i := 0; i+1 < len(x); i += 2 {
				a, b := x[i], x[i+1]
				sum += (1-a)*(1-a) + 100*(b-a*a)*(b-a*a)
			}
			return sum
		},
		Gradient: func(x []float64) []float64 {
			g := make([]float64, len(x))
			for i := 0; i+1 < len(x); i += 2 {
				a, b := x[i], x[i+1]
				g[i] = 2*(a-1) + 400*a*(a*a-b)
				g[i+1] = 200 * (b - a*a)
			}
			return g
		},
	}
}

// Descends checks on every machine that o brings the value of the problem for the
// tensor, started from seeded normal numbers, below part times the first one, in
// steps updates with a rate that falls in a line from the given one to zero.
func Descends(t *testing.T, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor, p Problem, rate float64, steps int, part float64) {
	t.Helper()
	Each(t, func(t *testing.T, m Machine) {
		t.Run(fmt.Sprint(p.Name, tensor.Shape), func(t *testing.T) {
			run := m.Train(t, o, given, tensor, Normal(1, tensor.Shape...).Data)
			start := p.Value(run.X())
			for i := range steps {
				run.Update(t, p.Gradient(run.X()), rate*float64(steps-i)/float64(steps))
			}
			if end := p.Value(run.X()); !(end <= part*start) {
				t.Errorf("the value went from %.4g to %.4g in %d updates, not below %.4g", start, end, steps, part*start)
			}
		})
	})
}

// OptimizerProperties checks on every machine what holds for every optimizer:
// without gradients nothing moves and the state stays finite; x and the state are
// all that there is to remember, and binary32 is enough to keep them: training goes
// on from them as it would have, to the bit on a device, and within tolerance times
// the largest parameter in binary64.
func OptimizerProperties(t *testing.T, o sdk.Optimizer, given map[string]any, tensor sdk.Tensor, tolerance float64) {
	t.Helper()
	const steps = 6
	Each(t, func(t *testing.T, m Machine) {
		t.Run(fmt.Sprint("zero gradients", tensor.Shape), func(t *testing.T) {
			start := Normal(2, tensor.Shape...)
			run := m.Train(t, o, given, tensor, start.Data)
			for range steps {
				run.Update(t, make([]float64, len(start.Data)), 1)
			}
			Near(t, "x", run.X(), start.Data, 0)
			run.checkFinite(t)
		})
		t.Run(fmt.Sprint("round trip", tensor.Shape), func(t *testing.T) {
			run := m.Train(t, o, given, tensor, Normal(3, tensor.Shape...).Data)
			gradients := Normal(4, append([]int{2 * steps}, tensor.Shape...)...)
			for i := range steps {
				run.Update(t, gradients.Row(i).Data, 0.01)
			}
			kept := run.Kept(t, o, given, tensor)
			for i := range steps {
				run.Update(t, gradients.Row(steps+i).Data, 0.01)
				kept.Update(t, gradients.Row(steps+i).Data, 0.01)
			}
			allowed := tolerance
			if !m.Double {
				allowed = 0
			}
			Near(t, "x", kept.X(), run.X(), allowed)
			kept.checkFinite(t)
		})
	})
}

func (r *Training) checkFinite(t testing.TB) {
	t.Helper()
	for name, v := range r.state {
		for _, f := range v.Floats {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				t.Fatalf("%s has an element %v", name, f)
			}
		}
	}
}
