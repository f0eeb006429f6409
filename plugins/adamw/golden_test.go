package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/adamw.json")
	// Binary32: five steps, each with an error of a few units of 6e-8 in a
	// direction of about 1 and in x.
	const single = 1e-6
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			settings := c.Params.Map()
			delete(settings, "weight_decay")
			got := m.Optimize(t, adamw{}, settings, plugintest.Trajectory{
				Start: c.Inputs.Tensor("x0"), Gradients: c.Inputs.Tensor("grads"), Rates: c.Inputs.Tensor("lrs").Data,
				Decay: c.Params.Float("weight_decay"),
			})
			m.Close(c.Expected, "x", got, single)
		})
	})
}
