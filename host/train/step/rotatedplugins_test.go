package step_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/rotation"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestPluginPrograms undoes the rotation of plugins' programs in float64: rotated, the
// value is Q(x), and the gradient for one on the value left rotated is that for the
// rotated one on Q(x). Programs without a rotation have none to undo.
func TestPluginPrograms(t *testing.T) {
	const row = -1 // the whole row
	for name, c := range map[string]struct {
		block    int
		settings string
	}{
		"quest":           {row, `quantizer={plugin="quest"}`},
		"quest, blocks":   {16, `quantizer={plugin="quest", rotation="16"}`},
		"quest, official": {row, `quantizer={plugin="quest", form="official", mask="clip"}`},
		"quest, ternary":  {row, `quantizer={plugin="quest", form="ternary", mask="none"}`},
		"mxfp4, quest":    {32, `quantizer={plugin="mxfp4", rotation="32", scale_rule="quest"}`},
		"mxfp4, absmax34": {32, `quantizer={plugin="mxfp4", rotation="32", scale_rule="absmax34", mask="trust"}`},
		"mxfp4, ocp":      {32, `quantizer={plugin="mxfp4", rotation="32"}`},
		"nvfp4":           {16, `quantizer={plugin="nvfp4", rotation="16"}`},
		"quest, none":     {0, `quantizer={plugin="quest", rotation="none"}`},
		"mxfp4, none":     {0, `quantizer={plugin="mxfp4"}`},
		"nvfp4, none":     {0, `quantizer={plugin="nvfp4"}`},
		"absmax":          {0, `quantizer={plugin="absmax"}`},
		"lsq":             {0, `quantizer={plugin="lsq"}`},
		"grid":            {0, `quantizer={plugin="grid"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := testrun.Plan(t, testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "model.hidden=64", c.settings))
			for _, r := range plan.Rules {
				if r.Quantizer == nil {
					continue
				}
				got := rotation.Ending(r.Quantizer.Program, sdk.OutputValue)
				want := c.block
				if want == row {
					want = r.Shape[1]
				}
				if got != want {
					t.Fatalf("%s ends in a rotation of %d, want %d", r.Name, got, want)
				}
				if got > 0 {
					checkUndone(t, r.Quantizer.Program, got)
				}
			}
		})
	}
}

func checkUndone(t *testing.T, p *program.Program, block int) {
	t.Helper()
	half, err := rotation.Undo(p, block, sdk.OutputValue, sdk.OutputSurrogate)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() reference.Tensor {
		data := make([]float64, p.Inputs[0].Type.Size())
		for i := range data {
			data[i] = rng.NormFloat64()
		}
		return reference.Floats(data, p.Inputs[0].Type.Shape...)
	}
	x, dz := random(), random()
	value := func(p *program.Program) reference.Tensor {
		return runReference(t, p, map[string]reference.Tensor{sdk.InputX: x})[sdk.OutputValue]
	}
	gradient := func(p *program.Program, dy reference.Tensor) reference.Tensor {
		d, err := autodiff.VJP(p, sdk.OutputSurrogate, sdk.InputX)
		if err != nil {
			t.Fatal(err)
		}
		return runReference(t, d, map[string]reference.Tensor{sdk.InputX: x, autodiff.Prefix + sdk.OutputSurrogate: dy})[autodiff.Prefix+sdk.InputX]
	}
	same64(t, "value", rotated(t, value(half), block), value(p))
	same64(t, "gradient", gradient(half, dz), gradient(p, rotated(t, dz, block)))
}

func rotated(t *testing.T, x reference.Tensor, block int) reference.Tensor {
	t.Helper()
	b := program.NewBuilder("rotation")
	b.Output("z", b.Input("x", x.Type).Hadamard(block))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return runReference(t, p, map[string]reference.Tensor{"x": x})["z"]
}

func runReference(t *testing.T, p *program.Program, in map[string]reference.Tensor) map[string]reference.Tensor {
	t.Helper()
	out, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same64(t *testing.T, what string, got, want reference.Tensor) {
	t.Helper()
	for i, w := range want.Floats {
		if !(math.Abs(got.Floats[i]-w) <= 1e-12) { // of numbers around 1
			t.Fatalf("%s: element %d is %v, want %v", what, i, got.Floats[i], w)
		}
	}
}
