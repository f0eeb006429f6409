package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance also covers frequent refreshes, blocks, and the sum of all statistics without
// grafting.
func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, shampoo{},
		plugintest.Kit(t, "kit", sdktest.GoldenFile(t, "testdata/official.json"))...)
	if testing.Short() {
		return // the rest covers other settings
	}
	for name, given := range map[string]map[string]any{
		"often":  {"freq": 2},
		"blocks": {"freq": 2, "max_precond_dim": 4},
		"sum":    {"freq": 2, "beta2": 1.0, "graft": false, "beta1": 0.0},
	} {
		options := plugintest.Fixed(t, shampoo{}, given)
		t.Run(name, func(t *testing.T) { sdktest.Optimizer(t, shampoo{}, options...) })
	}
}

// TestVectorRoot checks that the first update of a vector, whose only factor is ggᵀ + εI to the
// power −½, is g/√(‖g‖² + ε).
func TestVectorRoot(t *testing.T) {
	const eps = 0.5
	g := plugintest.Normal(7, 1, 6)
	norm2 := eps
	for _, v := range g.Data {
		norm2 += v * v
	}
	given := map[string]any{"beta1": 0.0, "beta2": 1.0, "eps": eps, "graft": false, "freq": 1}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		u := m.Train(t, shampoo{}, given, plugintest.Vector(6), make([]float64, 6)).Steps(t, g, 1)
		// A product of 6 terms in binary32.
		plugintest.Near(t, "u", u, plugintest.Times(-1/math.Sqrt(norm2), g.Data), 1e-6)
	})
}

// TestBrokenRoot checks that a block with a non-finite factor keeps its root, and that the others
// get new ones.
func TestBrokenRoot(t *testing.T) {
	p := plugintest.BuildOptimizer(t, shampoo{}, map[string]any{"max_precond_dim": 2},
		plugintest.Matrix(4, 2))
	state := map[string]reference.Tensor{spec.InputStep: reference.Float(10)}
	for _, s := range p.State {
		data := make([]float64, 1)
		for _, d := range s.Shape {
			data = slices.Repeat(data, d)
		}
		state[spec.StatePrefix+s.Name] = reference.Floats(data, s.Shape...)
	}
	copy(state["state.factor0"].Floats, []float64{math.NaN(), 0, 0, 1 /* the second block: */, 1, 0, 0,
		16})
	old := []float64{5, 6, 7, 8}
	copy(state["state.root0"].Floats, slices.Concat(old, old))
	root := plugintest.Reference().Run(t, p.Refresh, state)["state.root0"].Floats
	if !slices.Equal(root[:4], old) {
		t.Errorf("the root of a factor with NaN became %v", root[:4])
	}
	c := math.Pow(1-math.Pow(0.95, 10), 0.25) // the bias correction of the factor, in its root
	plugintest.Near(t, "the other root", root[4:], []float64{c, 0, 0, c / 2}, 1e-9)
}

// TestDue checks that refreshes are due at start and at the multiples of freq after it.
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
		p := plugintest.BuildOptimizer(t, shampoo{}, map[string]any{"freq": c.freq, "start": c.start},
			plugintest.Matrix(2, 3))
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

// TestAccepts checks that vectors and matrices are accepted; the embedding and the head only on
// demand.
func TestAccepts(t *testing.T) {
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorVector, sdk.TensorEmbedding,
		sdk.TensorHead} {
		tensor := sdk.Tensor{Name: "w", Role: role, Shape: []int{6}}
		if got, want := plugintest.BuildOptimizer(t, shampoo{}, nil,
			tensor).Accepts, role == sdk.TensorMatrix || role == sdk.TensorVector; got != want {
			t.Errorf("%s: accepted: %v", role, got)
		}
		if !plugintest.BuildOptimizer(t, shampoo{}, map[string]any{"embeddings": true}, tensor).Accepts {
			t.Errorf("%s with embeddings: declined", role)
		}
	}
	for _, shape := range [][]int{nil, {2, 3, 4}} {
		if plugintest.BuildOptimizer(t, shampoo{}, nil, plugintest.Matrix(shape...)).Accepts {
			t.Errorf("%v: accepted", shape)
		}
	}
}

// TestState checks that unused moments are not kept, and that blocks of one shape share a tensor.
func TestState(t *testing.T) {
	for _, c := range []struct {
		given map[string]any
		want  []string
	}{
		{nil, []string{"factor0", "factor1", "m", "root0", "root1", "v"}},
		{map[string]any{"graft": false}, []string{"factor0", "factor1", "m", "root0", "root1"}},
		{map[string]any{"beta1": 0.0}, []string{"factor0", "factor1", "root0", "root1", "v"}},
		{map[string]any{"max_precond_dim": 2, "beta1": 0.0, "graft": false},
			[]string{"factor0", "factor0.01", "factor1", "factor1.01", "root0", "root0.01", "root1",
				"root1.01"}},
	} {
		var names []string
		for _, s := range plugintest.BuildOptimizer(t, shampoo{}, c.given,
			plugintest.Matrix(4, 3)).State {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%v: %v, want %v", c.given, names, c.want)
		}
	}
}

// TestInverseRootGolden runs only on the reference implementation, as refreshes do.
func TestInverseRootGolden(t *testing.T) {
	f := golden.Load(t, "testdata/shampoo.json")
	f.RunList(t, "inverse_roots", func(t *testing.T, o golden.Object) {
		a := o.Array("a")
		o.Close("inverse_root", runRoot(t, a, o.Float("power"), o.Float("eps")))
	})
}

// TestInverseRootShift checks that if an eigenvalue of A + εI is below ε, all are shifted up until
// it is ε.
func TestInverseRootShift(t *testing.T) {
	for _, c := range []struct{ low, eps, shift float64 }{
		{-0.5, 0.25, 0.5},
		{-0.25, 0.5, 0.25},
		{0, 0.25, 0},
		{1, 0.25, 0},
	} {
		a := golden.Array{Shape: []int{2, 2}, Data: []float64{2, 0, 0, c.low}}
		want := []float64{1 / (2 + c.eps + c.shift), 0, 0, 1 / (c.low + c.eps + c.shift)}
		plugintest.Near(t, fmt.Sprintf("%+v", c), runRoot(t, a, 1, c.eps), want, 1e-15)
	}
}

func runRoot(t *testing.T, a golden.Array, power, eps float64) []float64 {
	t.Helper()
	n := a.Shape[0]
	return plugintest.Reference().
		Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
			return []program.Value{inverseRoot(in[0].EighValues(), in[0].EighVectors(), in[0], power, eps)}
		}, reference.Floats(a.Data, 1, n, n))[0]
}
