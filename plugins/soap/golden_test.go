package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/soap.json")
	// Binary32: seven steps, each with a few units of 6e-8 in x, in the rotations and in
	// bases that are kept in binary32.
	const single = 1e-6
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			settings := c.Params.Map()
			delete(settings, "weight_decay")
			delete(settings, "max_dim")
			settings["max_precond_dim"] = c.Params.Int("max_dim")
			rates := c.Inputs.Tensor("lrs").Clone().Data
			rates[0] = 0 // the published code leaves the first call before its decay; u is 0 anyway
			got := m.Optimize(t, soap{}, settings, plugintest.Trajectory{
				Start: c.Inputs.Tensor("x0"), Gradients: c.Inputs.Tensor("grads"), Rates: rates,
				Decay: c.Params.Float("weight_decay"), DecayLast: true,
			})
			m.Close(c.Expected, "x", got, single)
		})
	})
}
