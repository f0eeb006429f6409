package cage

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestOsciResetGolden compares weights with those of the authors' code over whole periods. The
// optimizer steps along the gradient with rate 1.
func TestOsciResetGolden(t *testing.T) {
	f := golden.Load(t, "testdata/oscireset.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		x, gradients := c.Inputs.Array("x0"), c.Inputs.Array("gradients")
		total := c.Params.Int("total")
		m := OsciReset{Every: c.Params.Int("every"),
			Start: (float64(c.Params.Int("start")) + 0.5) / float64(total)}
		m.Window, m.Threshold = c.Params.Int("window"), c.Params.Float("threshold")
		if c.Params.Int("start") == 0 {
			m.Start = 0
		}
		state := map[string][]float64{}
		for _, s := range m.State(x.Shape) {
			state[s.Name] = make([]float64, len(x.Data))
		}
		want, resets := c.Expected.Array("x"), c.Expected.Array("resets").Data
		at := x.Data
		for i := range total {
			rule := testRule(t, sgd{}, "fixed grid 0.25", x.Shape...)
			rule.Method, rule.Mode = m, m.Mode(At{Step: i + 1, Steps: total})
			p, err := rule.Program()
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]reference.Tensor{spec.InputX: reference.Floats(at, x.Shape...)}
			for name, v := range state {
				in[spec.StatePrefix+name] = reference.Floats(v, x.Shape...)
			}
			out := runReference(t, p, stepInputs(t, rule, in, *rule.Quantizer, runReference,
				gradients.Row(i).Data,
				map[string]float64{spec.InputStep: float64(i + 1), spec.InputRate: 1, InputNextRate: 1,
					InputClip: 1, InputLambda: 0}))
			changed := 0.0
			for k, v := range out[spec.InputX].Floats {
				if v != at[k]-gradients.Row(i).Data[k] {
					changed++
				}
			}
			if counted, is := out[CountPrefix+countReset]; is != (rule.Mode == resetting) || is &&
				counted.Floats[0] != resets[i] {
				t.Errorf("step %d (%s): the count is %v, want %v", i+1, rule.Mode, counted.Floats, resets[i])
			}
			if changed != resets[i] {
				t.Errorf("step %d (%s): %v weights are set back, want %v", i+1, rule.Mode, changed, resets[i])
			}
			at = out[spec.InputX].Floats
			plugintest.Near(t, "x", at, want.Row(i).Data, 1e-14)
			for name := range state {
				if s, computed := out[spec.StatePrefix+name]; computed {
					state[name] = s.Floats
				} else if rule.Mode != Idle {
					t.Fatalf("step %d: no %s", i+1, name)
				}
			}
		}
	})
}
