package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/sgd.json")
	// Binary32: five steps, each with an error of a few units of 6e-8 in g, the
	// buffer and x.
	const single = 1e-6
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			tr := plugintest.Trajectory{Start: c.Inputs.Tensor("x0"), Gradients: c.Inputs.Tensor("grads"), Rates: c.Inputs.Tensor("lrs").Data}
			settings := c.Params.Map()
			delete(settings, "weight_decay")
			delete(settings, "wd_mode")
			if c.Params.String("wd_mode") == "l2" {
				settings["l2"] = c.Params.Float("weight_decay")
			} else {
				tr.Decay = c.Params.Float("weight_decay")
			}
			m.Close(c.Expected, "x", m.Optimize(t, sgd{}, settings, tr), single)
		})
	})
}
