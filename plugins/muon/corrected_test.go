package main

import (
	"maps"
	"testing"

	method "github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// grid rounds to multiples of a quarter.
type grid struct{}

func (grid) Describe() sdk.Description { return sdk.Description{Name: "grid"} }

func (grid) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(4).Round().Scale(0.25)}, nil
}

// TestCorrectedGolden trains under the host's own update program, with decay and the
// decoupled correction around this optimizer.
func TestCorrectedGolden(t *testing.T) {
	f := golden.Load(t, "testdata/corrected.json")
	const single = 1e-6 // binary32: six steps, each with a few units of 6e-8 in u and in x
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			x0, grads, rates := c.Inputs.Array("x0"), c.Inputs.Array("grads"), c.Inputs.Array("lrs").Data
			rule := correctedRule(t, x0.Shape)
			p, err := rule.Program()
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]reference.Tensor{
				method.InputX:                 reference.Floats(x0.Data, x0.Shape...),
				method.InputClip:              reference.Float(1),
				sdk.StatePrefix + stateBuffer: reference.Floats(make([]float64, len(x0.Data)), x0.Shape...),
			}
			schedule := method.Method{Form: rule.Form, Lambda: c.Params.Float("lam"), Silence: c.Params.Float("silence"), Ramp: method.Linear}
			for i, step := range c.Expected.List("steps") {
				in[method.InputGradient] = reference.Floats(grads.Row(i).Data, x0.Shape...)
				in[method.InputStep] = reference.Float(float64(i + 1))
				in[method.InputRate], in[method.InputNextRate] = reference.Float(rates[i]), reference.Float(rates[i+1])
				in[method.InputLambda] = reference.Float(schedule.LambdaAt(i+1, c.Params.Int("total")))
				out := m.Run(t, p, in)
				if out[method.OutputUncorrected].Scalar() != 0 {
					t.Errorf("step %d is not corrected", i+1)
				}
				delete(out, method.OutputUncorrected) // the others are inputs of the next step
				maps.Copy(in, out)
				m.Close(step, "x", in[method.InputX].Floats, single)
			}
		})
	})
}

func correctedRule(t *testing.T, shape []int) method.Rule {
	t.Helper()
	q := plugintest.BuildQuantizer(t, grid{}, nil, shape...)
	return method.Rule{
		Name: "w", Shape: shape, Optimizer: plugintest.BuildOptimizer(t, muon{}, nil, plugintest.Matrix(shape...)), Quantizer: &q, Decay: 0.1, RateFactor: 1,
		Form: method.Decoupled, Variant: method.Paper,
	}
}
