package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func TestGolden(t *testing.T) {
	f := golden.Load(t, "testdata/muon.json")
	// Binary32: three steps, each with a few units of 6e-8 in x and in u, whose errors
	// Newton–Schulz multiplies by a little more than 1.
	const single = 1e-6
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			settings := c.Params.Map()
			delete(settings, "weight_decay")
			got := m.Optimize(t, muon{}, settings, plugintest.Trajectory{
				Start: c.Inputs.Tensor("x0"), Gradients: c.Inputs.Tensor("grads"), Rates: c.Inputs.Tensor("lrs").Data,
				Decay: c.Params.Float("weight_decay"),
			})
			m.Close(c.Expected, "x", got, single)
		})
	})
}

func TestNewtonSchulzGolden(t *testing.T) {
	f := golden.Load(t, "testdata/muon.json")
	const single = 1e-6 // binary32: five steps of three products with sums of at most four terms
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		f.RunList(t, "newton_schulz", func(t *testing.T, o golden.Object) {
			c := o.Case()
			k := c.Params.Tensor("coefficients").Data
			it := iteration{steps: c.Params.Int("steps"), eps: c.Params.Float("eps"), factor: 1, a: k[0], b: k[1], c: k[2]}
			m.Close(c.Expected, "o", orthogonalize(t, m, c.Inputs.Tensor("g"), it), single)
		})
	})
}

// orthogonalize runs newtonSchulz alone.
func orthogonalize(t *testing.T, m plugintest.Machine, g golden.Tensor, it iteration) []float64 {
	t.Helper()
	b := program.NewBuilder("newton-schulz")
	b.Output("o", newtonSchulz(b.Input("g", program.FloatType(g.Shape...)), it))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m.Run(t, p, map[string]reference.Tensor{"g": reference.Floats(g.Data, g.Shape...)})["o"].Floats
}
