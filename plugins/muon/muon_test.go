package main

import (
	"maps"
	"math"
	"testing"

	method "github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestConformance also covers updates without momentum.
func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, muon{},
		plugintest.Kit(t, "kit", sdktest.GoldenFile(t, "testdata/official.json"))...)
	for name, given := range map[string]map[string]any{"no momentum": {"momentum": 0.0}} {
		options := plugintest.Fixed(t, muon{}, given)
		t.Run(name, func(t *testing.T) { sdktest.Optimizer(t, muon{}, options...) })
	}
}

func TestNewtonSchulzGolden(t *testing.T) {
	f := golden.Load(t, "testdata/muon.json")
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		f.RunList(t, "newton_schulz", func(t *testing.T, o golden.Object) {
			c := o.Case()
			k := c.Params.Array("coefficients").Data
			it := iteration{steps: c.Params.Int("steps"), eps: c.Params.Float("eps"), factor: 1, a: k[0],
				b: k[1], c: k[2]}
			g := c.Inputs.Array("g")
			if got := orthogonalize(t, m, g, it); m.Double() {
				c.Expected.Close("o", got)
			} else {
				c.Expected.CloseWithin(golden.Tolerance{Abs: roundings(t, g, it)}, "o", got)
			}
		})
	})
}

// roundings bounds the rounding errors of newtonSchulz in binary32. Each step multiplies small
// singular values, and the errors in their directions, by up to 3.4445; the total depends on the
// matrix. So the reference implementation measures it: every entry of the matrix is changed by 2⁻²⁴
// of its norm, and the largest change of the result stands for the error of one product. Each step
// has three products.
func roundings(t *testing.T, g golden.Array, it iteration) float64 {
	t.Helper()
	want := orthogonalize(t, plugintest.Reference(), g, it)
	most, norm := 0.0, 0.0
	for _, v := range g.Data {
		norm = math.Hypot(norm, v)
	}
	for seed := range uint64(8) {
		off, noise := g.Clone(), plugintest.Normal(seed, g.Shape...)
		for i, v := range noise.Data {
			off.Data[i] += 0x1p-24 * math.Copysign(1, v) * norm
		}
		for i, v := range orthogonalize(t, plugintest.Reference(), off, it) {
			most = max(most, math.Abs(v-want[i]))
		}
	}
	return 3 * float64(it.steps) * most
}

// TestRoundingsTellCoefficientsApart checks that the bound is tight enough to reject other
// coefficients, and one step more or less.
func TestRoundingsTellCoefficientsApart(t *testing.T) {
	published := iteration{steps: 5, eps: 1e-7, factor: 1, a: 3.4445, b: -4.775, c: 2.0315}
	for _, shape := range [][]int{{3, 2}, {4, 4}, {3, 8}} {
		for seed := range uint64(10) {
			g := plugintest.Normal(100+seed, shape...)
			want, allowed := orthogonalize(t, plugintest.Reference(), g, published),
				roundings(t, g, published)
			differs := func(it iteration) bool {
				for i, v := range orthogonalize(t, plugintest.Reference(), g, it) {
					if math.Abs(v-want[i]) > allowed {
						return true
					}
				}
				return false
			}
			got := orthogonalize(t, plugintest.CPU(t), g, published)
			for i := range got {
				if !(math.Abs(got[i]-want[i]) <= allowed) {
					t.Errorf("%v, seed %d: element %d is %v, want %v within %.2g", shape, seed, i, got[i], want[i],
						allowed)
				}
			}
			for name, change := range map[string]func(*iteration){
				"a": func(it *iteration) { it.a += 0.001 }, "b": func(it *iteration) { it.b += 0.001 },
				"c":           func(it *iteration) { it.c += 0.001 },
				"a step more": func(it *iteration) { it.steps++ },
				"a step less": func(it *iteration) { it.steps-- },
			} {
				if !differs(changed(published, change)) {
					t.Errorf("%v, seed %d: with another %s everything is within %.2g", shape, seed, name, allowed)
				}
			}
		}
	}
}

func changed(it iteration, change func(*iteration)) iteration {
	change(&it)
	return it
}

func orthogonalize(t *testing.T, m plugintest.Bench, g golden.Array, it iteration) []float64 {
	t.Helper()
	return m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{newtonSchulz(in[0], it)}
	}, reference.Floats(g.Data, g.Shape...))[0]
}

// grid rounds to multiples of a quarter.
type grid struct{}

func (grid) Describe() sdk.Description { return sdk.Description{Name: "grid"} }

func (grid) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(4).Round().Scale(0.25)}, nil
}

// TestCorrectedGolden trains with the update program of the host, with weight decay and the
// decoupled correction around this optimizer.
func TestCorrectedGolden(t *testing.T) {
	f := golden.Load(t, "testdata/corrected.json")
	const single = 1e-6 // binary32: six steps, each with errors of a few units of 6e-8 in u and in x
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			x0, grads, rates := c.Inputs.Array("x0"), c.Inputs.Array("grads"), c.Inputs.Array("lrs").Data
			rule := correctedRule(t, x0.Shape)
			p, err := rule.Program()
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]reference.Tensor{
				spec.InputX:                    reference.Floats(x0.Data, x0.Shape...),
				method.InputClip:               reference.Float(1),
				spec.StatePrefix + stateBuffer: reference.Floats(make([]float64, len(x0.Data)), x0.Shape...),
			}
			schedule := method.Default
			schedule.Lambda, schedule.Silence = c.Params.Float("lam"), c.Params.Float("silence")
			for i, step := range c.Expected.List("steps") {
				in[spec.InputGradient] = reference.Floats(grads.Row(i).Data, x0.Shape...)
				in[spec.InputStep] = reference.Float(float64(i + 1))
				in[spec.InputRate], in[method.InputNextRate] = reference.Float(rates[i]),
					reference.Float(rates[i+1])
				in[method.InputLambda] = reference.Float(schedule.Coefficient(i+1, c.Params.Int("total")))
				out := m.Run(t, p, in)
				if out[method.OutputUncorrected].Scalar() != 0 {
					t.Errorf("step %d is not corrected", i+1)
				}
				delete(out, method.OutputUncorrected) // the other outputs are inputs of the next step
				maps.Copy(in, out)
				m.Close(step, "x", in[spec.InputX].Floats, single)
			}
		})
	})
}

func correctedRule(t *testing.T, shape []int) method.Rule {
	t.Helper()
	q := plugintest.BuildQuantizer(t, grid{}, nil, shape...)
	return method.Rule{
		Name: "w", Shape: shape,
		Optimizer: plugintest.BuildOptimizer(t, muon{}, nil, plugintest.Matrix(shape...)), Quantizer: &q,
		Decay: 0.1, RateFactor: 1,
		Method: method.Default, Mode: method.Mode(method.Decoupled),
	}
}
