package main

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestInverseRootGolden runs on the oracle only, as refreshes do.
func TestInverseRootGolden(t *testing.T) {
	f := golden.Load(t, "testdata/shampoo.json")
	f.RunList(t, "inverse_roots", func(t *testing.T, o golden.Object) {
		a := o.Array("a")
		o.Close("inverse_root", runRoot(t, a, o.Float("power"), o.Float("eps")))
	})
}

// TestInverseRootShift: where an eigenvalue of A + εI is below ε, all are shifted up
// until it is ε.
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

// runRoot runs inverseRoot alone.
func runRoot(t *testing.T, a golden.Array, power, eps float64) []float64 {
	t.Helper()
	n := a.Shape[0]
	return plugintest.Oracle().Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{inverseRoot(in[0].EighValues(), in[0].EighVectors(), in[0], power, eps)}
	}, reference.Floats(a.Data, 1, n, n))[0]
}
