package main

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/shampoo.json")
	// Binary32: six steps, each with a few units of 6e-8 in x and in a direction of the
	// norm of Adam's. What the factors lose to binary32 changes their roots little:
	// only eigenvalues far below the largest are uncertain, and they are none here.
	const single = 1e-6
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			settings := c.Params.Map()
			delete(settings, "weight_decay")
			got := m.Optimize(t, shampoo{}, settings, plugintest.Trajectory{
				Start: c.Inputs.Tensor("x0"), Gradients: c.Inputs.Tensor("grads"), Rates: c.Inputs.Tensor("lrs").Data,
				Decay: c.Params.Float("weight_decay"),
			})
			m.Close(c.Expected, "x", got, single)
		})
	})
}

// TestInverseRootGolden runs on the oracle only, as refreshes do.
func TestInverseRootGolden(t *testing.T) {
	f := golden.Load(t, "testdata/shampoo.json")
	f.RunList(t, "inverse_roots", func(t *testing.T, o golden.Object) {
		a := o.Tensor("a")
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
		a := golden.Tensor{Shape: []int{2, 2}, Data: []float64{2, 0, 0, c.low}}
		want := []float64{1 / (2 + c.eps + c.shift), 0, 0, 1 / (c.low + c.eps + c.shift)}
		plugintest.Near(t, fmt.Sprintf("%+v", c), runRoot(t, a, 1, c.eps), want, 1e-15)
	}
}

// runRoot runs inverseRoot alone.
func runRoot(t *testing.T, a golden.Tensor, power, eps float64) []float64 {
	t.Helper()
	n := a.Shape[0]
	b := program.NewBuilder("inverse-root")
	b.Output("root", inverseRoot(b.Input("a", program.FloatType(1, n, n)), power, eps))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return plugintest.Oracle().Run(t, p, map[string]reference.Tensor{"a": reference.Floats(a.Data, 1, n, n)})["root"].Floats
}
