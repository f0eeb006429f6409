package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, stochastic{}, plugintest.With(t, nil)...)
}

// TestGolden compares with testdata/stochastic.py, an independent implementation.
func TestGolden(t *testing.T) {
	plugintest.EachCase(t, "stochastic", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		x, noise := c.Inputs.Array("x"), c.Inputs.Array("noise")
		built := plugintest.BuildQuantizer(t, stochastic{}, map[string]any{"bits": c.Params.Int("bits")},
			x.Shape...)
		inputs := map[string]reference.Tensor{spec.InputX: reference.Floats(x.Data, x.Shape...)}
		evaluated := m.Run(t, built.Evaluate, inputs)
		inputs[spec.InputNoise] = reference.Uints(
			[]uint32{uint32(noise.Data[0]), uint32(noise.Data[1])}, 2)
		trained := m.Run(t, built.Program, inputs)
		c.Expected.Exact("codes", trained[spec.OutputCodes].Float64s())
		c.Expected.Exact("evaluated_codes", evaluated[spec.OutputCodes].Float64s())
		const single = 4 * 0x1p-24 // x, 1/top, the scale and the product are rounded to binary32
		m.Close(c.Expected, "value", trained[spec.OutputValue].Floats, single)
		m.Close(c.Expected, "evaluated", evaluated[spec.OutputValue].Floats, single)
	})
}
