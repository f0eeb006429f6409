package cage

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// e2m1 rounds to E2M1 with a scale for each row.
func e2m1(t *testing.T, shape ...int) spec.Quantizer {
	t.Helper()
	q, err := sdk.BuildQuantizer(packed{halves: true}, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestOsciResetGolden follows the weights of the authors' code through whole periods. The optimizer steps along the gradient
// with rate 1.
func TestOsciResetGolden(t *testing.T) {
	f := golden.Load(t, "testdata/oscireset.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		x, gradients := c.Inputs.Array("x0"), c.Inputs.Array("gradients")
		total := c.Params.Int("total")
		m := OsciReset{Every: c.Params.Int("every"), Start: (float64(c.Params.Int("start")) + 0.5) / float64(total)}
		edges := c.Params.Has("edge")
		if edges {
			m.By, m.Edge = ByEdge, c.Params.Float("edge")
		} else {
			m.Window, m.Threshold = c.Params.Int("window"), c.Params.Float("threshold")
		}
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
			if edges {
				q := e2m1(t, x.Shape...)
				rule.Quantizer, rule.Weight = &q, &Weight{Quantizer: q, Unpack: q.Unpack}
			}
			rule.Method, rule.Mode = m, m.Mode(At{Step: i + 1, Steps: total})
			p, err := rule.Program()
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]reference.Tensor{spec.InputX: reference.Floats(at, x.Shape...)}
			for name, v := range state {
				in[spec.StatePrefix+name] = reference.Floats(v, x.Shape...)
			}
			out := oracle(t, p, stepInputs(t, rule, in, *rule.Quantizer, oracle, gradients.Row(i).Data,
				map[string]float64{spec.InputStep: float64(i + 1), spec.InputRate: 1, InputNextRate: 1, InputClip: 1, InputLambda: 0}))
			changed := 0.0
			for k, v := range out[spec.InputX].Floats {
				if v != at[k]-gradients.Row(i).Data[k] {
					changed++
				}
			}
			if counted, is := out[CountPrefix+countReset]; is != (rule.Mode == resetting) || is && counted.Floats[0] != resets[i] {
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

// turned quantizes the rotated weight.
type turned struct{ packed }

func (q turned) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	out, err := q.packed.Quantize(b, x.Hadamard(8), site)
	out.Value = out.Value.Hadamard(8)
	return out, err
}

// TestEdgesRotated: in a quantizer that ends in a rotation, weights are set back before that.
func TestEdgesRotated(t *testing.T) {
	shape := []int{2, 16}
	x := plugintest.Normal(5, shape...)
	plain, err := sdk.BuildQuantizer(packed{halves: true}, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := sdk.BuildQuantizer(turned{packed{halves: true}}, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	run := func(q spec.Quantizer, rotation int, x []float64) (next []float64, count float64) {
		rule := testRule(t, sgd{}, "fixed grid 0.25", shape...)
		rule.Quantizer, rule.Weight = &q, &Weight{Quantizer: q, Rotation: rotation, Unpack: plain.Unpack}
		rule.Method, rule.Mode = OsciReset{Every: 3, By: ByEdge, Edge: 0.3}, resetting
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		out := oracle(t, p, stepInputs(t, rule, map[string]reference.Tensor{spec.InputX: reference.Floats(x, shape...)}, q, oracle, make([]float64, len(x)),
			map[string]float64{spec.InputStep: 1, spec.InputRate: 1, InputNextRate: 1, InputClip: 1, InputLambda: 0}))
		return out[spec.InputX].Floats, out[CountPrefix+countReset].Floats[0]
	}
	want, n := run(plain, 0, x.Data)
	got, m := run(rotated, 8, plugintest.Hadamard(x, 8).Data)
	if n == 0 || n == float64(len(want)) || m != n {
		t.Errorf("%v and %v weights are set back", n, m)
	}
	plugintest.Near(t, "x", plugintest.Hadamard(golden.Array{Shape: shape, Data: got}, 8).Data, want, 1e-12)
}

// TestEdgesRefused: without levels there are no edges.
func TestEdgesRefused(t *testing.T) {
	q := testQuantizer(t, "fixed grid 0.25", []int{2, 8})
	m := DefaultOsciReset
	m.By = ByEdge
	if _, err := m.Forward(&Weight{Quantizer: q, Unpack: q.Unpack}, 10); err == nil || !strings.Contains(err.Error(), `use reset_by = "distance_ratio"`) {
		t.Errorf("error %v", err)
	}
}
