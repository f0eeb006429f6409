package main

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
)

// matrix and vector are tensors to train.
func matrix(shape ...int) sdk.Tensor {
	return sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: shape}
}

func vector(n int) sdk.Tensor {
	return sdk.Tensor{Name: "norm", Role: sdk.TensorVector, Shape: []int{n}}
}

// build returns the optimizer's programs for a tensor.
func build(t *testing.T, given map[string]any, tensor sdk.Tensor) sdk.OptimizerProgram {
	t.Helper()
	tensor.Values = plugintest.Settings(t, soap{}.Describe(), given)
	p, err := sdk.BuildOptimizer(soap{}, tensor)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProperties(t *testing.T) {
	given := map[string]any{"freq": 2}
	for _, tensor := range []sdk.Tensor{matrix(4, 6), matrix(6, 4), matrix(1, 5), vector(6), matrix()} {
		plugintest.OptimizerProperties(t, soap{}, given, tensor, 1e-5)
	}
	given["precondition_1d"] = true
	plugintest.OptimizerProperties(t, soap{}, given, vector(6), 1e-5)
	given["normalize"] = true
	given["bias_correction"] = false
	plugintest.OptimizerProperties(t, soap{}, given, matrix(4, 6), 1e-5)
}

func TestDescends(t *testing.T) {
	given := map[string]any{"freq": 5}
	for _, tensor := range []sdk.Tensor{matrix(4, 6), vector(6)} {
		plugintest.Descends(t, soap{}, given, tensor, plugintest.Parabola(), 0.1, 300, 1e-3)
		plugintest.Descends(t, soap{}, given, tensor, plugintest.Rosenbrock(), 0.05, 300, 1e-2)
	}
}

// TestFirstUpdate: the first gradient makes the factors and nothing else.
func TestFirstUpdate(t *testing.T) {
	start, g := plugintest.Normal(1, 2, 3).Data, plugintest.Normal(2, 2, 3).Data
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		run := m.Train(t, soap{}, nil, matrix(2, 3), start)
		run.Update(t, g, 1)
		plugintest.Near(t, "x", run.X(), start, 0)
		plugintest.Near(t, "m", run.State("m"), make([]float64, 6), 0)
		plugintest.Near(t, "v", run.State("v"), make([]float64, 6), 0)
		cross := g[0]*g[3] + g[1]*g[4] + g[2]*g[5]
		want := []float64{g[0]*g[0] + g[1]*g[1] + g[2]*g[2], cross, cross, g[3]*g[3] + g[4]*g[4] + g[5]*g[5]}
		plugintest.Near(t, "L", run.State("factor0"), plugintest.Times(1-0.95, want), 5e-7) // binary32: three products
	})
}

// TestVectorIsAdam: without a basis it is Adam that leaves out the first gradient and
// adds ε before the correction.
func TestVectorIsAdam(t *testing.T) {
	const n, steps, eps = 4, 6, 0.1
	gradients := plugintest.Normal(3, steps, n)
	for name, tensor := range map[string]sdk.Tensor{"vector": vector(n), "a matrix of long axes": matrix(2, 2)} {
		t.Run(name, func(t *testing.T) {
			want, mean, square := make([]float64, n), make([]float64, n), make([]float64, n)
			for s := 1; s < steps; s++ {
				for i, g := range gradients.Row(s).Data {
					mean[i] = 0.9*mean[i] + (1-0.9)*g
					square[i] = 0.8*square[i] + (1-0.8)*g*g
					corrected := math.Sqrt(1-math.Pow(0.8, float64(s))) / (1 - math.Pow(0.9, float64(s)))
					want[i] -= 0.1 * corrected * mean[i] / (math.Sqrt(square[i]) + eps)
				}
			}
			plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
				given := map[string]any{"beta1": 0.9, "beta2": 0.8, "eps": eps, "max_precond_dim": 1}
				run := m.Train(t, soap{}, given, tensor, make([]float64, n))
				for s := range steps {
					run.Update(t, gradients.Row(s).Data, 0.1)
				}
				plugintest.Near(t, "x", run.X(), want, 1e-6) // binary32: five steps of a few units of 6e-8
			})
		})
	}
}

// TestNormalize: without corrections the direction has a root mean square of 1.
func TestNormalize(t *testing.T) {
	given := map[string]any{"normalize": true, "bias_correction": false}
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		run := m.Train(t, soap{}, given, matrix(3, 4), make([]float64, 12))
		for s := range 2 {
			run.Update(t, plugintest.Normal(uint64(s), 3, 4).Data, 1)
		}
		sum := 0.0
		for _, v := range run.X() {
			sum += v * v
		}
		plugintest.Near(t, "rms", []float64{math.Sqrt(sum / 12)}, []float64{1}, 1e-6) // binary32: rotations and a sum of 12
	})
}

// TestShampooBeta: below 0 it is beta2, otherwise itself.
func TestShampooBeta(t *testing.T) {
	for given, want := range map[float64]float64{-1: 0.95, -0.5: 0.95, 0: 0, 0.9: 0.9} {
		values := plugintest.Settings(t, soap{}.Describe(), map[string]any{"shampoo_beta": given})
		if got := shampooBeta(sdk.Tensor{Values: values}); got != want {
			t.Errorf("shampoo_beta %v means %v, want %v", given, got, want)
		}
	}
}

// TestThreeAxes: the axes of a tensor are alike: turned around, it moves as before.
func TestThreeAxes(t *testing.T) {
	const steps = 6
	given := map[string]any{"freq": 2, "max_precond_dim": 3}
	start, gradients := plugintest.Normal(4, 2, 3, 5).Data, plugintest.Normal(5, steps, 2, 3, 5)
	m := plugintest.Oracle()
	run := m.Train(t, soap{}, given, matrix(2, 3, 5), start)
	turned := m.Train(t, soap{}, given, matrix(5, 2, 3), turn(start))
	for s := range steps {
		run.Update(t, gradients.Row(s).Data, 0.1)
		turned.Update(t, turn(gradients.Row(s).Data), 0.1)
	}
	plugintest.Near(t, "x", turned.X(), turn(run.X()), 1e-12)
}

// turn makes the last axis of a [2,3,5] the first.
func turn(data []float64) (out []float64) {
	for k := range 5 {
		for i := range 6 {
			out = append(out, data[5*i+k])
		}
	}
	return out
}

// TestState: an axis that is too long, and a vector, have no factor and no basis.
func TestState(t *testing.T) {
	for _, c := range []struct {
		given  map[string]any
		tensor sdk.Tensor
		want   []string
	}{
		{nil, matrix(2, 3), []string{"basis0", "basis1", "factor0", "factor1", "m", "v"}},
		{map[string]any{"max_precond_dim": 2}, matrix(2, 3), []string{"basis0", "factor0", "m", "v"}},
		{map[string]any{"max_precond_dim": 1}, matrix(2, 3), []string{"m", "v"}},
		{nil, vector(3), []string{"m", "v"}},
		{map[string]any{"precondition_1d": true}, vector(3), []string{"basis0", "factor0", "m", "v"}},
	} {
		p := build(t, c.given, c.tensor)
		var names []string
		for _, s := range p.State {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%v %v: %v, want %v", c.given, c.tensor.Shape, names, c.want)
		}
		if refreshes := p.Due.First > 0; refreshes != (len(c.want) > 2) || p.Observe != nil {
			t.Errorf("%v %v: due at %+v, observes: %v", c.given, c.tensor.Shape, p.Due, p.Observe != nil)
		}
	}
}
