package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

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
	return m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{newtonSchulz(in[0], it)}
	}, reference.Floats(g.Data, g.Shape...))[0]
}
