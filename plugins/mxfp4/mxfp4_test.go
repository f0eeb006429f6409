package main

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/fpmodel"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

var rules = []string{ruleOCP, ruleRound, ruleAbsMax34, ruleCeil, ruleQuest}

// TestConformance covers each scale rule with each mask and each rule for ties, and each scale rule
// with a rotation, beside the kit's combinations. By default each scale rule is tried once: with
// one mask, or with a rotation.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, mxfp4{}, plugintest.Kit(t, "kit")...)
	if testing.Short() {
		return // the rest covers other settings
	}
	masks := []string{maskNone, maskClip, maskTrust}
	for r, rule := range rules {
		for i, mask := range masks {
			if !testlevel.All() && (i != r%len(masks) || r%2 == 1) {
				continue
			}
			ties := microscaling.TiesNames()[i]
			given := map[string]any{"scale_rule": rule, "mask": mask, "ties": ties,
				"rotation": microscaling.NoRotation}
			t.Run(rule+"/"+mask+"/"+ties,
				func(t *testing.T) { sdktest.Quantizer(t, mxfp4{}, plugintest.Fixed(t, mxfp4{}, given)...) })
		}
		if !testlevel.All() && r%2 == 0 {
			continue
		}
		t.Run(rule+"/rotated", func(t *testing.T) {
			sdktest.Quantizer(t, mxfp4{},
				plugintest.Fixed(t, mxfp4{}, map[string]any{"scale_rule": rule, "rotation": "64"})...)
		})
	}
}

// TestStochastic runs the kit on stochastic rounding, with and without random signs. This rounding
// is unbiased where nothing saturates.
func TestStochastic(t *testing.T) {
	testlevel.Long(t, "checks all that a plugin promises, twice")
	unbiased := map[string]any{"scale_rule": ruleAbsMax34, "rounding": microscaling.RoundStochastic,
		"mask": maskNone, "ties": "even", "rotation": microscaling.NoRotation,
		"signs": microscaling.SignsFixed}
	sdktest.Quantizer(t, mxfp4{}, plugintest.Fixed(t, mxfp4{}, unbiased)...)
	turned := maps.Clone(unbiased)
	turned["rotation"], turned["signs"] = "32", microscaling.SignsRandom
	sdktest.Quantizer(t, mxfp4{}, plugintest.Fixed(t, mxfp4{}, turned)...)
}

// TestStochasticGolden compares with testdata/stochastic.py, an independent implementation.
func TestStochasticGolden(t *testing.T) {
	plugintest.EachCase(t, "stochastic", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		x := c.Inputs.Array("x")
		given := map[string]any{"scale_rule": c.Params.String("rule"),
			"rotation": c.Params.String("rotation"), "rounding": microscaling.RoundStochastic}
		if given["rotation"] != microscaling.NoRotation {
			given["signs"] = microscaling.SignsRandom
		}
		built := plugintest.BuildQuantizer(t, mxfp4{}, given, x.Shape...)
		inputs := map[string]reference.Tensor{spec.InputX: reference.Floats(x.Data, x.Shape...)}
		for input, key := range map[string]golden.Array{spec.InputNoise: c.Inputs.Array("noise"),
			spec.InputSharedNoise: c.Inputs.Array("shared")} {
			if built.HasInput(input) {
				inputs[input] = reference.Uints([]uint32{uint32(key.Data[0]), uint32(key.Data[1])}, 2)
			}
		}
		out := m.Run(t, built.Program, inputs)
		c.Expected.Exact("codes", out[spec.OutputCodes].Float64s())
		m.Close(c.Expected, "scale", out[spec.OutputScale].Floats, single)
		m.Close(c.Expected, "value", out[spec.OutputValue].Floats, single)
		given["rounding"], given["signs"] = microscaling.RoundNearest, microscaling.SignsFixed
		if nearest := plugintest.BuildQuantizer(t, mxfp4{}, given,
			x.Shape...); built.Evaluate.Hash() != nearest.Program.Hash() {
			t.Error("evaluation does not round to nearest without random signs")
		}
	})
}

// TestQuartet compares with testdata/quartet.py, which runs the authors' code: the projection of
// the forward pass with its mask and gradient, in the rotated domain, and the three products of a
// layer.
func TestQuartet(t *testing.T) {
	forward := map[string]any{"scale_rule": ruleQuest, "ties": string(microscaling.TiesDown),
		"rotation": "32"}
	backward := map[string]any{"scale_rule": ruleAbsMax34, "rounding": microscaling.RoundStochastic,
		"rotation": "32"}
	plugintest.EachCase(t, "quartet", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		x := c.Inputs.Array("x")
		given := maps.Clone(forward)
		if c.Params.Has("layer") {
			testLayer(t, m, c, forward, backward)
			return
		}
		given["rotation"] = c.Params.String("rotation")
		q := m.Quantize(t, mxfp4{}, given, x)
		m.Close(c.Expected, "zhat", decode(q, x).Data, single)
		c.Expected.Exact("mask", q.Mask)
		dz := c.Inputs.Array("dz")
		if given["rotation"] != microscaling.NoRotation {
			dz = plugintest.Hadamard(dz, 32)
		}
		m.Close(c.Expected, "dx", q.Gradient(t, dz.Data), single)
	})
}

// testLayer compares the products of a layer, whose operands the plugin quantizes. They stay
// rotated, as in the host.
func testLayer(t *testing.T, m plugintest.Bench, c golden.Case, forward, backward map[string]any) {
	x, w, dy, keys := c.Inputs.Array("x"), c.Inputs.Array("w"), c.Inputs.Array("dy"),
		c.Inputs.Lists("noise")
	qx, qw := m.Quantize(t, mxfp4{}, forward, x), m.Quantize(t, mxfp4{}, forward, w)
	zx, zw := decode(qx, x), decode(qw, w)
	again := func(i int, x golden.Array) golden.Array {
		built := plugintest.BuildQuantizer(t, mxfp4{}, backward, x.Shape...)
		out := m.Run(t, built.Program, map[string]reference.Tensor{
			spec.InputX:     reference.Floats(x.Data, x.Shape...),
			spec.InputNoise: reference.Uints([]uint32{uint32(keys[i][0]), uint32(keys[i][1])}, 2),
		})
		return golden.Array{Shape: x.Shape, Data: out[spec.OutputValue].Float64s()}
	}
	gradient := func(q plugintest.Quantization, dz golden.Array) []float64 {
		return q.Gradient(t, plugintest.Hadamard(dz, 32).Data)
	}
	m.Close(c.Expected, "y", plugintest.Product(zx, zw).Data, single)
	m.Close(c.Expected, "dx",
		gradient(qx, plugintest.Product(again(0, dy), again(1, plugintest.Transposed(zw)))), single)
	m.Close(c.Expected, "dw",
		gradient(qw, plugintest.Product(again(2, plugintest.Transposed(dy)),
			again(3, plugintest.Transposed(zx)))), single)
}

// decode returns ẑ, computed from codes and scales.
func decode(q plugintest.Quantization, x golden.Array) golden.Array {
	return golden.Array{Shape: x.Shape, Data: fpmodel.Decode(q.Codes, q.Scale, x.Shape[1], block)}
}

// TestSignsNeedRotation checks that signs alone, which change no rounding, are refused.
func TestSignsNeedRotation(t *testing.T) {
	plugintest.RefusesWeight(t, mxfp4{}, map[string]any{"signs": microscaling.SignsRandom},
		`signs = "random" have no effect without a rotation`, 2, 96)
}

// TestModel compares rows of many lengths with model. The results of both machines must be exact,
// except for the factor 4/3.
func TestModel(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, d := range []int{1, 3, 31, 32, 33, 128, 640} {
			x := ladders(d)
			for _, rule := range rules {
				for _, ties := range microscaling.TiesNames() {
					given := map[string]any{"scale_rule": rule, "ties": ties, "mask": maskClip}
					got, want := m.Quantize(t, mxfp4{}, given, x), model(x.Data, d, rule, microscaling.Ties(ties))
					what := fmt.Sprintf("%s, ties %s, rows of %d: ", rule, ties, d)
					plugintest.Near(t, what+"codes", got.Codes, want.codes, 0)
					plugintest.Near(t, what+"clip", got.Mask, want.clip, 0)
					exact := 0.0
					if rule == ruleAbsMax34 {
						exact = 1e-7
					}
					plugintest.Near(t, what+"value", got.Value, want.value, exact)
					plugintest.Near(t, what+"scale", got.Scale, want.scale, exact)
					given["mask"] = maskTrust
					plugintest.Near(t, what+"trust", m.Quantize(t, mxfp4{}, given, x).Mask, want.trust, 0)
				}
			}
		}
	})
}

// ladders returns rows of normal numbers, half of them rounded so that ties occur, and a row that
// saturates.
func ladders(d int) golden.Array {
	x := plugintest.Normal(uint64(d), 4, d)
	for j := range d {
		x.Data[j] = math.Round(x.Data[j]*8) / 8
		x.Data[d+j] = math.Round(x.Data[d+j]*8) / 8 * 0.75
		x.Data[3*d+j] = 7.5 - float64(j%8)/4
	}
	return x
}

// TestFixed checks that values on the grid do not change under the rule of the specification: the
// maximum of a block becomes 4X or 6X, which give the scale X again.
func TestFixed(t *testing.T) {
	x := plugintest.Normal(4, 16, 33)
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		once := m.Quantize(t, mxfp4{}, nil, x)
		again := m.Quantize(t, mxfp4{}, nil, golden.Array{Shape: x.Shape, Data: once.Value})
		plugintest.Near(t, "value", again.Value, once.Value, 0)
		plugintest.Near(t, "scale", again.Scale, once.Scale, 0)
	})
}

// TestDefaultMasks checks that auto clips only under the quest rule.
func TestDefaultMasks(t *testing.T) {
	x := golden.Array{Shape: []int{1, 32}, Data: make([]float64, 32)}
	for i := range x.Data {
		x.Data[i] = math.Mod(float64(i)*0.7, 1)
	}
	x.Data[3] = 60 // above 6X under all rules except absmax34 and ceil
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, rule := range rules {
			want := 1.0
			if rule == ruleQuest {
				want = 0
			}
			q := m.Quantize(t, mxfp4{}, map[string]any{"scale_rule": rule}, x)
			ones := make([]float64, 32)
			for i := range ones {
				ones[i] = 1
			}
			if g := q.Gradient(t, ones); q.Mask[3] != want || g[3] != want || q.Mask[4] != 1 || g[4] != 1 {
				t.Errorf("%s: mask %v, gradient %v, want %v", rule, q.Mask[3], g[3], want)
			}
		}
	})
}

// TestRotation checks that Hx is quantized, with separate errors in each block of the rotation, and
// that the gradient is Hᵀ(M ⊙ H·dx̂).
func TestRotation(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, order := range []int{32, 64, 128} {
			x, dy := plugintest.Normal(1, 3, 256), plugintest.Normal(2, 3, 256)
			z, dz := plugintest.Hadamard(x, order), plugintest.Hadamard(dy, order)
			for _, mask := range []string{maskNone, maskTrust, maskClip} {
				plain := m.Quantize(t, mxfp4{}, map[string]any{"mask": mask, "scale_rule": ruleQuest}, z)
				turned := m.Quantize(t, mxfp4{}, map[string]any{"mask": mask, "scale_rule": ruleQuest,
					"rotation": fmt.Sprint(order)}, x)
				plugintest.Near(t, "codes", turned.Codes, plain.Codes, 0)
				plugintest.Near(t, "mask", turned.Mask, plain.Mask, 0)
				back := golden.Array{Shape: x.Shape, Data: plain.Value}
				plugintest.Near(t, "value", turned.Value, plugintest.Hadamard(back, order).Data, single)
				back.Data = plain.Gradient(t, dz.Data)
				plugintest.Near(t, "gradient", turned.Gradient(t, dy.Data),
					plugintest.Hadamard(back, order).Data, single)
			}
		}
	})
}

// TestRotationPoison checks that a non-finite element makes its whole block of the rotation NaN,
// and nothing else.
func TestRotationPoison(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, mask := range []string{maskNone, maskClip} {
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				given := map[string]any{"rotation": "64", "mask": mask}
				x := plugintest.Normal(3, 2, 128)
				clean := m.Quantize(t, mxfp4{}, given, x)
				x = x.Clone()
				x.Data[70] = bad
				got := m.Quantize(t, mxfp4{}, given, x)
				for i := range x.Data {
					spoiled := i >= 64 && i < 128
					switch {
					case spoiled && !(math.IsNaN(got.Value[i]) && got.Codes[i] == 0 && got.Mask[i] == 0):
						t.Fatalf("%v: %d: value %v, code %v, mask %v", bad, i, got.Value[i], got.Codes[i],
							got.Mask[i])
					case !spoiled && (got.Value[i] != clean.Value[i] || got.Codes[i] != clean.Codes[i] ||
						got.Mask[i] != clean.Mask[i]):
						t.Fatalf("%v at 70 changes %d", bad, i)
					}
				}
			}
		}
	})
}

// TestResidual checks that the backward pass keeps only the mask of the forward pass.
func TestResidual(t *testing.T) {
	for mask, want := range map[string][]int{maskNone: {4, 3, 1}, maskClip: {4, 3, 32},
		maskTrust: {4, 3, 32}} {
		kept := plugintest.Residuals(t, mxfp4{}, map[string]any{"mask": mask, "rotation": "32"}, 4, 96)
		if len(kept) != 1 || !kept[0].Equal(program.Type{DType: program.Bool, Shape: want}) {
			t.Errorf("mask %s: residuals %v, want one bool%v", mask, kept, want)
		}
	}
}

func TestBadRotation(t *testing.T) {
	plugintest.RefusesWeight(t, mxfp4{}, map[string]any{"rotation": "64"},
		"blocks of 64 do not divide the row length 96; the largest that do have 32", 2, 96)
}

// single bounds the errors of binary32, relative to the largest value of a row. Without rotation
// and the factor 4/3, all results except the scale of the quest rule are exact; two rotations of 32
// give errors of a few units of 6e-8.
const single = 1e-6

// TestHandChecks checks a block that was computed by hand.
func TestHandChecks(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{3, -1.3, 0.1, 0.7}}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		q := m.Quantize(t, mxfp4{}, nil, x)
		plugintest.Near(t, "ocp", q.Value, []float64{3, -1.5, 0, 0.75}, 0)
		plugintest.Near(t, "ocp codes", q.Codes, []float64{7, 13, 0, 3}, 0)
		q = m.Quantize(t, mxfp4{}, map[string]any{"scale_rule": ruleAbsMax34}, x)
		plugintest.Near(t, "absmax34", q.Value, []float64{8. / 3, -4. / 3, 0, 2. / 3}, 1e-7)
	})
}
