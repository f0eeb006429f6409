package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/absmax.json")
	// Binary32: one division for the scale and one product, about 1e-7 of the
	// largest value.
	const single = 3e-7
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			settings := c.Params.Map()
			if settings["group"] == 0 { // the file's way to say that there are none
				delete(settings, "group")
			}
			q := m.Quantize(t, absmax{}, settings, c.Inputs.Tensor("x"))
			c.Expected.Exact("codes", q.Codes)
			m.Close(c.Expected, "dequant", q.Value, single)
			steps := q.Scale
			if c.Params.String("grid") == gridCentred { // codes are doubled, the scale is halved
				steps = plugintest.Times(2, steps)
			}
			m.Close(c.Expected, "scales", steps, single)
		})
	})
}
