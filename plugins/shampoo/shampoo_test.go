package main

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
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
	tensor.Values = plugintest.Settings(t, shampoo{}.Describe(), given)
	p, err := sdk.BuildOptimizer(shampoo{}, tensor)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProperties(t *testing.T) {
	given := map[string]any{"freq": 2}
	for _, tensor := range []sdk.Tensor{matrix(4, 6), matrix(6, 4), matrix(1, 5), vector(6), matrix()} {
		plugintest.OptimizerProperties(t, shampoo{}, given, tensor, 1e-5)
	}
	given["max_precond_dim"] = 4
	plugintest.OptimizerProperties(t, shampoo{}, given, matrix(5, 9), 1e-5)
	sum := map[string]any{"freq": 2, "beta2": 1.0, "graft": false, "beta1": 0.0}
	plugintest.OptimizerProperties(t, shampoo{}, sum, matrix(4, 6), 1e-5)
}

func TestDescends(t *testing.T) {
	given := map[string]any{"freq": 5}
	for _, tensor := range []sdk.Tensor{matrix(4, 6), vector(6)} {
		plugintest.Descends(t, shampoo{}, given, tensor, plugintest.Parabola(), 0.1, 300, 1e-3)
		plugintest.Descends(t, shampoo{}, given, tensor, plugintest.Rosenbrock(), 0.05, 300, 1e-2)
	}
}

// TestVectorRoot: the first update of a vector by its only factor, ggᵀ + εI to minus
// one half, is g/√(‖g‖² + ε).
func TestVectorRoot(t *testing.T) {
	const eps = 0.5
	g := plugintest.Normal(7, 1, 5)
	norm2 := eps
	for _, v := range g.Data {
		norm2 += v * v
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		got := m.Optimize(t, shampoo{}, map[string]any{"beta1": 0.0, "beta2": 1.0, "eps": eps, "graft": false, "freq": 1}, plugintest.Trajectory{
			Start: golden.Tensor{Shape: []int{5}, Data: make([]float64, 5)}, Gradients: g, Rates: []float64{1},
		})
		plugintest.Near(t, "u", got, plugintest.Times(-1/math.Sqrt(norm2), g.Data), 1e-6) // a product of 5 terms in binary32
	})
}

// TestExponent: a given exponent takes the place of 1/(2·order).
func TestExponent(t *testing.T) {
	start, gradients := plugintest.Normal(8, 6).Data, plugintest.Normal(9, 3, 6)
	end := func(given map[string]any, tensor sdk.Tensor) []float64 {
		given["freq"], given["eps"] = 1, 1e-3
		run := plugintest.Oracle().Train(t, shampoo{}, given, tensor, start)
		for i := range 3 {
			run.Update(t, gradients.Row(i).Data, 0.1)
		}
		return run.X()
	}
	for order, tensor := range map[int]sdk.Tensor{1: vector(6), 2: matrix(2, 3)} {
		byOrder := end(map[string]any{}, tensor)
		if got := end(map[string]any{"exponent": 1 / float64(2*order)}, tensor); !slices.Equal(got, byOrder) {
			t.Errorf("order %d: the exponent 1/%d is not the default", order, 2*order)
		}
		if got := end(map[string]any{"exponent": 1.0}, tensor); slices.Equal(got, byOrder) {
			t.Errorf("order %d: the exponent changes nothing", order)
		}
	}
}

// TestBrokenRoot: a block whose factor is not finite keeps its root; the others get
// theirs.
func TestBrokenRoot(t *testing.T) {
	p := build(t, map[string]any{"max_precond_dim": 2}, matrix(4, 2))
	state := map[string]reference.Tensor{sdk.InputStep: reference.Float(10)}
	for _, s := range p.State {
		data := make([]float64, 1)
		for _, d := range s.Shape {
			data = slices.Repeat(data, d)
		}
		state[sdk.StatePrefix+s.Name] = reference.Floats(data, s.Shape...)
	}
	copy(state["state.factor0"].Floats, []float64{math.NaN(), 0, 0, 1 /* the second block: */, 1, 0, 0, 16})
	old := []float64{5, 6, 7, 8}
	copy(state["state.root0"].Floats, slices.Concat(old, old))
	root := plugintest.Oracle().Run(t, p.Refresh, state)["state.root0"].Floats
	if !slices.Equal(root[:4], old) {
		t.Errorf("the root of a factor with NaN became %v", root[:4])
	}
	c := math.Pow(1-math.Pow(0.95, 10), 0.25) // the correction of the factor, in its root
	plugintest.Near(t, "the other root", root[4:], []float64{c, 0, 0, c / 2}, 1e-9)
}

// TestDue: refreshes come at start and at the multiples of freq after it.
func TestDue(t *testing.T) {
	for _, c := range []struct {
		freq, start int
		want        []int
	}{
		{1, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{3, 0, []int{3, 6, 9}},
		{3, 1, []int{1, 3, 6, 9}},
		{3, 5, []int{5, 6, 9}},
		{3, 6, []int{6, 9}},
	} {
		p := build(t, map[string]any{"freq": c.freq, "start": c.start}, matrix(2, 3))
		var got []int
		for step := 1; step <= 10; step++ {
			if due, _ := p.Due.At(step); due {
				got = append(got, step)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("freq %d, start %d: due at %v, want %v", c.freq, c.start, got, c.want)
		}
	}
}

// TestAccepts: everything but the embedding and the head, and these on demand.
func TestAccepts(t *testing.T) {
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorVector, sdk.TensorEmbedding, sdk.TensorHead} {
		tensor := sdk.Tensor{Name: "w", Role: role, Shape: []int{6}}
		if got, want := build(t, nil, tensor).Accepts, role == sdk.TensorMatrix || role == sdk.TensorVector; got != want {
			t.Errorf("%s: accepted: %v", role, got)
		}
		if !build(t, map[string]any{"embeddings": true}, tensor).Accepts {
			t.Errorf("%s with embeddings: declined", role)
		}
	}
}

// TestState: moments that nothing uses are not kept, and blocks of one shape share a
// tensor.
func TestState(t *testing.T) {
	for _, c := range []struct {
		given map[string]any
		want  []string
	}{
		{nil, []string{"factor0", "factor1", "m", "root0", "root1", "v"}},
		{map[string]any{"graft": false}, []string{"factor0", "factor1", "m", "root0", "root1"}},
		{map[string]any{"beta1": 0.0}, []string{"factor0", "factor1", "root0", "root1", "v"}},
		{map[string]any{"max_precond_dim": 2, "beta1": 0.0, "graft": false}, []string{"factor0", "factor0.01", "factor1", "factor1.01", "root0", "root0.01", "root1", "root1.01"}},
	} {
		var names []string
		for _, s := range build(t, c.given, matrix(4, 3)).State {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%v: %v, want %v", c.given, names, c.want)
		}
	}
}
