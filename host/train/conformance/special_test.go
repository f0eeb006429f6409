package conformance_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestTorchSpecialNumbers compares the module Quantizer of cage-torch with the reference
// implementation on 10,640 matrices with zeros, ties, numbers from the smallest to the largest,
// infinities and NaN. Quantizers that add nothing up give the same bits. Sums have rounding errors,
// which decide in a row whose numbers lie on the boundary of two levels, as the rotation of one
// large number may: one matrix of 280 may differ. No number is so large that a part of a sum
// overflows, which the reference computes in binary64.
func TestTorchSpecialNumbers(t *testing.T) {
	m := startTorch(t)
	type settings = map[string]any
	list := []struct {
		plugin string
		settings
		sums bool
	}{
		{"absmax", settings{}, false},
		{"absmax", settings{"grid": "full", "granularity": "tensor"}, false},
		{"absmax", settings{"grid": "centred", "bits": 3}, false},
		{"absmax", settings{"grid": "signed", "granularity": "group", "group": 8}, false},
		{"absmax", settings{"grid": "gptq", "granularity": "group", "scale_dtype": "f16"}, false},
		{"absmax", settings{"grid": "fit", "granularity": "group", "group": 16}, true},
		{"absmax", settings{"grid": "sign", "bits": 1, "granularity": "group", "group": 32}, true},
		{"absmax", settings{"grid": "minimum", "granularity": "group", "scale_dtype": "f16"}, false},
		{"absmax", settings{"grid": "mlx", "scale_dtype": "bf16"}, false},
		{"absmax", settings{"grid": "affine", "granularity": "group", "group": 16}, true},
		{"absmax", settings{"grid": "asymmetric_fit", "granularity": "group", "group": 16}, false},
		{"absmax", settings{"rounding": "llama.cpp", "bits": 8, "scale_dtype": "f16"}, false},
		{"grid", settings{}, false},
		{"grid", settings{"step": 0.1, "rounding": "floor"}, false},
		{"grid", settings{"bits": 4, "step": 0.125}, false},
		{"lsq", settings{}, true},
		{"lsq", settings{"form": "official", "granularity": "row"}, true},
		{"lsq", settings{"form": "stableqat", "granularity": "row", "surrogate": "sine"}, true},
		{"lsq", settings{"variant": "lsq+", "scale_dtype": "bf16"}, true},
		{"mseden", settings{}, true},
		{"mxfp4", settings{}, false},
		{"mxfp4", settings{"scale_rule": "round", "mask": "trust", "ties": "away"}, false},
		{"mxfp4", settings{"scale_rule": "absmax34", "rounding": "stochastic"}, false},
		{"mxfp4", settings{"scale_rule": "ceil", "ties": "down"}, false},
		{"mxfp4", settings{"scale_rule": "quest"}, true},
		{"mxfp4", settings{"rotation": "32", "mask": "clip", "signs": "random"}, true},
		{"nvfp4", settings{}, false},
		{"nvfp4", settings{"scale_rule": "mse"}, true},
		{"nvfp4", settings{"scale_form": "encode", "ties": "away"}, false},
		{"nvfp4", settings{"scale_form": "power_of_two", "weight_blocks": "16x16"}, false},
		{"nvfp4", settings{"rotation": "16", "rounding": "stochastic", "signs": "random"}, true},
		{"paretoq", settings{"bits": 0}, true},
		{"paretoq", settings{"bits": 1}, true},
		{"paretoq", settings{"bits": 2}, true},
		{"paretoq", settings{"bits": 4, "scale_dtype": "f16"}, true},
		{"quest", settings{}, true},
		{"quest", settings{"form": "official", "bits": 2}, true},
		{"quest", settings{"form": "ternary", "mask": "clip"}, true},
		{"quest", settings{"rotation": "none", "bits": 8, "mask": "none"}, true},
	}
	const cases = 280 // times 39
	known := testrun.Executables(t)
	seen := map[string]bool{}
	for i, c := range list {
		seen[c.plugin] = true
		t.Run(fmt.Sprint(c.plugin, c.settings), func(t *testing.T) {
			q := answer(t, known[c.plugin], c.settings, shape)
			reverse, err := q.Reverse()
			if err != nil {
				t.Fatal(err)
			}
			outputs := []string{spec.OutputValue}
			for _, name := range q.Differentiable() {
				outputs = append(outputs, autodiff.Prefix+name)
			}
			r := rand.New(rand.NewPCG(7, uint64(i)))
			tolerance, boundary := 0.0, 0
			if c.sums {
				tolerance, boundary = 1e-6, 1
			}
			for n := range cases {
				inputs := special(t, r, q, c.sums)
				want := run(t, q.Program, inputs)
				maps.Copy(want, run(t, reverse, inputs))
				got, err := m.quantize(c.plugin, c.settings, inputs, outputs)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range outputs {
					err := nearRows(got[name], want[name], tolerance, inputs[spec.InputDY])
					if err == nil {
						continue
					}
					t.Logf("case %d: %s: %v", n, name, err)
					if boundary--; boundary < 0 {
						t.Fatalf("of %v", inputs[spec.InputX].Floats)
					}
					break
				}
			}
		})
	}
	for name, path := range known {
		exe, err := testrun.Finder(t).Find(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{})
		if err == nil {
			client.Close()
		}
		if err == nil && !seen[name] {
			t.Errorf("the quantizer %s is not tested", name)
		}
	}
}

// answer asks a quantizer for its programs for a weight.
func answer(t *testing.T, path string, settings map[string]any, shape []int) spec.Quantizer {
	t.Helper()
	exe, err := testrun.Finder(t).Find(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	values, err := client.Resolve(settings)
	if err != nil {
		t.Fatal(err)
	}
	q, err := client.Quantize(t.Context(), sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape,
		Values: values, Training: true, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run computes what the program needs of the inputs.
func run(t *testing.T, p *program.Program, inputs map[string]reference.Tensor,
) map[string]reference.Tensor {
	own := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		own[in.Name] = inputs[in.Name]
	}
	out, err := reference.Run32(p, own)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// nearRows returns an error unless floats have the same bits, or differ by at most tolerance times
// the largest number of their row; the gradients of trained parameters, which are sums over the
// matrix of products with numbers up to 1, by tolerance times the sum of |dy|.
func nearRows(got, want reference.Tensor, tolerance float64, dy reference.Tensor) error {
	columns := shape[1]
	for i, w := range want.Floats {
		scale := 0.0
		if len(want.Floats) == len(dy.Floats) {
			for _, v := range want.Floats[i/columns*columns:][:columns] {
				if v := math.Abs(v); !math.IsInf(v, 0) && v > scale {
					scale = v
				}
			}
		} else {
			for _, v := range dy.Floats {
				scale += math.Abs(v)
			}
		}
		g := got.Floats[i]
		same := math.Float64bits(g) == math.Float64bits(w) || math.IsNaN(g) && math.IsNaN(w)
		if !same && !(tolerance > 0 && (g == w || math.Abs(g-w) <= tolerance*scale)) {
			return fmt.Errorf("element %d is %v, want %v", i, g, w)
		}
	}
	return nil
}

var shape = []int{4, 32}

// special draws the inputs of a quantizer. Rows of x are normal numbers, or have one kind of
// special numbers, alone or among others.
func special(t *testing.T, r *rand.Rand, q spec.Quantizer, sums bool) map[string]reference.Tensor {
	sign := func() float64 { return float64(1 - 2*r.IntN(2)) }
	kinds := []func() float64{
		r.NormFloat64,
		func() float64 { return 0 },
		func() float64 { return math.Copysign(0, -1) },
		func() float64 { return float64(r.IntN(65)-32) / 8 }, // many ties
		func() float64 { return 0.5 },
		func() float64 { return math.Ldexp(r.NormFloat64(), r.IntN(250)-140) },
		func() float64 { return math.Ldexp(sign(), r.IntN(276)-149) },
		func() float64 { return 1e-40 * r.NormFloat64() },
		func() float64 { return math.SmallestNonzeroFloat32 * sign() },
		func() float64 { return math.MaxFloat32 * sign() },
		func() float64 { return 1e-20 * r.NormFloat64() },
		func() float64 { return 1e19 * r.NormFloat64() },
		func() float64 { return math.Inf(r.IntN(2) - 1) },
		math.NaN,
	}
	const most = math.MaxFloat32 / 1024
	var x, dy []float64
	scale := math.Ldexp(1, r.IntN(61)-30)
	for range shape[0] {
		usual, other := kinds[r.IntN(8)], kinds[r.IntN(len(kinds))]
		share := []float64{0, 0, 0.03, 0.3}[r.IntN(4)]
		for range shape[1] {
			v := usual() * scale
			if r.Float64() < share {
				v = other()
			}
			if sums && !math.IsInf(v, 0) {
				v = min(max(v, -most), most)
			}
			x, dy = append(x, float64(float32(v))), append(dy, float64(float32(r.NormFloat64())))
		}
	}
	inputs := map[string]reference.Tensor{
		spec.InputX: reference.Floats(x, shape...), spec.InputDY: reference.Floats(dy, shape...)}
	for _, in := range []string{spec.InputNoise, spec.InputSharedNoise} {
		if q.Program.Input(in) >= 0 {
			inputs[in] = reference.Uints([]uint32{r.Uint32(), r.Uint32()}, 2)
		}
	}
	if q.Init != nil {
		maps.Copy(inputs, run(t, q.Init, inputs))
	}
	return inputs
}
