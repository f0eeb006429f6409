package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, spin{}, plugintest.With(t, nil)...)
}

// TestGolden compares with testdata/spin.py, an independent implementation.
func TestGolden(t *testing.T) {
	plugintest.EachCase(t, "spin", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		tensor := func(name string) reference.Tensor {
			a := c.Inputs.Array(name)
			return reference.Floats(a.Data, a.Shape...)
		}
		values := map[string]any{"bits": c.Params.Int("bits"), "block": c.Params.Int("block")}
		built := plugintest.BuildQuantizer(t, spin{}, values, tensor("x").Type.Shape...)
		const r = spec.TrainedPrefix + rotation
		inputs := map[string]reference.Tensor{spec.InputX: tensor("x"), r: tensor(rotation)}
		out := m.Run(t, built.Program, inputs)
		vjp, err := autodiff.VJP(built.Program, spec.OutputSurrogate, spec.InputX, r)
		if err != nil {
			t.Fatal(err)
		}
		inputs[autodiff.Prefix+spec.OutputSurrogate] = tensor("dy")
		gradient := m.Run(t, vjp, inputs)
		moved := m.Run(t, built.Trained[0].Constrain, map[string]reference.Tensor{r: tensor("moved")})
		c.Expected.Exact("codes", out[spec.OutputCodes].Float64s())
		const single = 64 * 0x1p-24 // sums of up to 16 products, twice
		m.Close(c.Expected, "value", out[spec.OutputValue].Floats, single)
		m.Close(c.Expected, "constrained", moved[r].Floats, single)
		m.Close(c.Expected, "dx", gradient[autodiff.Prefix+spec.InputX].Floats, single)
		m.Close(c.Expected, "dr", gradient[autodiff.Prefix+r].Floats, 8*single) // also sums over rows
	})
}
