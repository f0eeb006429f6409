package main

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance also covers frequent refreshes of the bases.
func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, soap{},
		plugintest.Kit(t, "soap", sdktest.GoldenFile(t, "testdata/official.json"))...)
	if testing.Short() {
		return // the rest covers other settings
	}
	for name, given := range map[string]map[string]any{
		"often": {"freq": 2},
	} {
		options := plugintest.Fixed(t, soap{}, given)
		t.Run(name, func(t *testing.T) { sdktest.Optimizer(t, soap{}, options...) })
	}
}

// TestScalar checks that a tensor without axes moves like a vector of one element.
func TestScalar(t *testing.T) {
	gradients := plugintest.Normal(6, 5, 1)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		want := m.Train(t, soap{}, nil, plugintest.Vector(1), []float64{1}).Steps(t, gradients, 0.1)
		plugintest.Near(t, "x", m.Train(t, soap{}, nil, plugintest.Matrix(), []float64{1}).
			Steps(t, gradients, 0.1), want, 0)
	})
}

// TestFirstUpdate checks that the first gradient changes only the factors.
func TestFirstUpdate(t *testing.T) {
	start, g := plugintest.Normal(1, 2, 3).Data, plugintest.Normal(2, 2, 3).Data
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		run := m.Train(t, soap{}, nil, plugintest.Matrix(2, 3), start)
		run.Update(t, g, 1)
		plugintest.Near(t, "x", run.X(), start, 0)
		plugintest.Near(t, "m", run.State("m"), make([]float64, 6), 0)
		plugintest.Near(t, "v", run.State("v"), make([]float64, 6), 0)
		cross := g[0]*g[3] + g[1]*g[4] + g[2]*g[5]
		want := []float64{g[0]*g[0] + g[1]*g[1] + g[2]*g[2], cross, cross, g[3]*g[3] + g[4]*g[4] +
			g[5]*g[5]}
		// binary32: three products
		plugintest.Near(t, "L", run.State("factor0"), plugintest.Times(1-0.95, want), 5e-7)
	})
}

// TestVectorIsAdam checks that SOAP without a basis is Adam that omits the first gradient and adds
// ε before the bias correction.
func TestVectorIsAdam(t *testing.T) {
	const n, steps, eps = 4, 6, 0.1
	gradients := plugintest.Normal(3, steps, n)
	for name, tensor := range map[string]sdk.Tensor{"vector": plugintest.Vector(n),
		"a matrix of long axes": plugintest.Matrix(2, 2)} {
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
			plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
				given := map[string]any{"beta1": 0.9, "beta2": 0.8, "eps": eps, "max_precond_dim": 1}
				got := m.Train(t, soap{}, given, tensor, make([]float64, n)).Steps(t, gradients, 0.1)
				plugintest.Near(t, "x", got, want, 1e-6) // binary32: five steps of a few units of 6e-8
			})
		})
	}
}

// TestShampooBeta checks that a shampoo_beta below 0 means beta2.
func TestShampooBeta(t *testing.T) {
	for given, want := range map[float64]float64{-1: 0.95, -0.5: 0.95, 0: 0, 0.9: 0.9} {
		values := plugintest.Settings(t, soap{}.Describe(), map[string]any{"shampoo_beta": given})
		if got := shampooBeta(sdk.Tensor{Values: values}); got != want {
			t.Errorf("shampoo_beta %v means %v, want %v", given, got, want)
		}
	}
}

func TestThreeAxes(t *testing.T) {
	_, err := sdk.BuildOptimizer(soap{}, sdk.Tensor{Role: sdk.TensorMatrix, Shape: []int{2, 3, 5},
		Values: plugintest.Settings(t, soap{}.Describe(), nil)})
	plugintest.Refused(t, "three axes", err, "the tensor has 3 axes")
}

// TestState checks that a vector, and an axis that is too long, have no factor and no basis.
func TestState(t *testing.T) {
	for _, c := range []struct {
		given  map[string]any
		tensor sdk.Tensor
		want   []string
	}{
		{nil, plugintest.Matrix(2, 3), []string{"basis0", "basis1", "factor0", "factor1", "m", "v"}},
		{map[string]any{"max_precond_dim": 2}, plugintest.Matrix(2, 3),
			[]string{"basis0", "factor0", "m", "v"}},
		{map[string]any{"max_precond_dim": 1}, plugintest.Matrix(2, 3), []string{"m", "v"}},
		{nil, plugintest.Vector(3), []string{"m", "v"}},
	} {
		p := plugintest.BuildOptimizer(t, soap{}, c.given, c.tensor)
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

// BenchmarkRefresh runs the refresh of one matrix of a model of width 256.
func BenchmarkRefresh(b *testing.B) {
	tensor := plugintest.Matrix(768, 256)
	tensor.Values = plugintest.Settings(b, soap{}.Describe(), nil)
	p, err := sdk.BuildOptimizer(soap{}, tensor)
	if err != nil {
		b.Fatal(err)
	}
	state := map[string]reference.Tensor{spec.InputStep: reference.Float(12)}
	for i, s := range p.State {
		v := normal(uint64(i), s.Shape...)
		if n := s.Shape[0]; s.Name == "factor0" || s.Name == "factor1" { // any symmetric matrix
			for i := range n {
				for j := range i {
					v.Floats[j*n+i] = v.Floats[i*n+j]
				}
			}
		}
		state[spec.StatePrefix+s.Name] = v
	}
	b.Run("double", func(b *testing.B) {
		for b.Loop() {
			if _, err := reference.Run(p.Refresh, state); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fast", func(b *testing.B) {
		for b.Loop() {
			if _, err := refresh.Execute(p.Refresh, state); err != nil {
				b.Fatal(err)
			}
		}
	})
}
