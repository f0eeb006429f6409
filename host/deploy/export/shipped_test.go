package export_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// peculiar has functions for matrices of few distinct numbers, by parameter.
var peculiar = map[string]func(row, column int) float32{
	"layers.0.attn.out": func(int, int) float32 { return 0 },
	"layers.0.attn.qkv": func(row, column int) float32 { // identity, and zeros below it
		if row == column {
			return 1
		}
		return 0
	},
	"layers.0.mlp.w1": func(row, column int) float32 { return 0.25 },
	"layers.0.mlp.w2": func(row, column int) float32 {
		return 0.3 * float32(1-2*((row+column)%2))
	},
	// one nonzero element in sixteen, in eight rows only
	"layers.0.mlp.down": func(row, column int) float32 {
		if row < 8 && column%16 == 3 {
			return 0.7
		}
		return 0
	},
}

// shipped lists the shipped quantizers, with settings that change codes or scales.
var shipped = []struct {
	name     string
	settings []map[string]any
}{
	{"absmax", []map[string]any{
		nil, {"scale_dtype": "f16"}, {"scale_dtype": "f16", "bits": 2}, {"scale_dtype": "f16", "bits": 8},
		{"scale_dtype": "f16", "granularity": "tensor"},
		{"scale_dtype": "f16", "granularity": "group", "group": 32},
		{"granularity": "group", "group": 64},
		{"scale_dtype": "f16", "grid": "full"}, {"scale_dtype": "f16", "grid": "gptq"},
		{"scale_dtype": "f16", "grid": "signed"}, {"scale_dtype": "f16", "grid": "signed", "bits": 2},
		{"scale_dtype": "f16", "grid": "signed", "bits": 5}, {"grid": "fit"},
		{"scale_dtype": "f16", "grid": "sign", "bits": 1},
		{"scale_dtype": "f16", "rounding": "llama.cpp"},
		{"scale_dtype": "f16", "grid": "minimum"}, {"scale_dtype": "f16", "grid": "affine"},
		{"scale_dtype": "f16", "grid": "asymmetric"}, {"grid": "asymmetric_fit", "bits": 8},
		{"scale_dtype": "f16", "grid": "minimum", "bits": 5}, {"scale_dtype": "f16", "grid": "mlx"},
		{"scale_dtype": "f16", "grid": "centred"},
		{"grid": "centred", "bits": 1}, {"scale_dtype": "f16", "grid": "centred", "bits": 3}}},
	{"mxfp4", []map[string]any{nil, {"scale_rule": "absmax34"}, {"scale_rule": "quest"},
		{"scale_rule": "ceil"}, {"rotation": "32"}}},
	{"nvfp4", []map[string]any{nil, {"scale_form": "encode"},
		{"scale_form": "encode", "scale_rule": "mse"}, {"scale_form": "power_of_two"}}},
	{"quest", []map[string]any{nil, {"rotation": "none", "scale_dtype": "f16"},
		{"rotation": "none", "form": "official", "scale_dtype": "f16"},
		{"rotation": "none", "form": "official"},
		{"rotation": "none", "form": "ternary", "scale_dtype": "f16"}}},
	{"lsq", []map[string]any{nil, {"scale_dtype": "f16", "granularity": "row"},
		{"scale_dtype": "f16", "form": "official"}, {"form": "stableqat", "bits": 2}}},
	{"paretoq", []map[string]any{nil, {"scale_dtype": "f16", "bits": 0},
		{"scale_dtype": "f16", "bits": 1}, {"scale_dtype": "f16", "bits": 4}}},
	// without bits, the type would depend on the codes of all weights
	{"grid", []map[string]any{{"step": 0.125, "bits": 4}}},
	{"mseden", []map[string]any{nil}},
}

// TestTypesFollowSettings checks that the numbers of a matrix do not decide its type. Matrices of
// zeros, of one number and the like must have the same type as random ones, or the export must be
// refused for the same reason.
func TestTypesFollowSettings(t *testing.T) {
	testlevel.Long(t, "starts plugins and runs their programs")
	dev := conformance.NewDevice(testrun.Device(t))
	defer dev.Close()
	names := slices.Collect(maps.Keys(testrun.Executables(t)))
	for _, s := range shipped {
		names = slices.DeleteFunc(names, func(name string) bool { return name == s.name })
		client := started(t, s.name)
		for i, settings := range s.settings {
			if !testlevel.All() && i%3 != 0 && s.name != "mxfp4" {
				continue
			}
			typesFollowSettings(t, dev, client, settings)
		}
	}
	for _, name := range names {
		if exe, err := testrun.Finder(t).Find(t.Context(), name); err == nil {
			if client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer,
				plugin.Options{}); err == nil {
				client.Close()
				t.Errorf("the quantizer %s is not tried", name)
			}
		}
	}
}

func started(t *testing.T, name string) *plugin.Client {
	t.Helper()
	exe, err := testrun.Finder(t).Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// typesFollowSettings compares models with random and with peculiar matrices.
func typesFollowSettings(
	t *testing.T, dev *conformance.Device, client *plugin.Client, settings map[string]any,
) {
	t.Helper()
	values, err := client.Resolve(settings)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]*export.Quantized{} // by the parameter and whether it is peculiar
	model := func(only string) *export.Model {
		m := small(t, architecture.KindLlama,
			func(p architecture.Param, x []float32) *export.Quantized {
				number := peculiar[p.Name]
				if only != "" && only != p.Name {
					number = nil
				}
				key := fmt.Sprint(p.Name, number == nil)
				if known[key] == nil {
					for i := range x {
						if number != nil {
							x[i] = number(i/p.Dims[1], i%p.Dims[1])
						}
					}
					site := sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: p.Dims, Layers: 1, Values: values}
					q, err := client.Quantize(t.Context(), site)
					if err != nil {
						t.Fatal(err)
					}
					known[key] = quantized(t, dev, q, x, p.Dims)
				}
				out := *known[key]
				return &out
			})
		for name := range peculiar {
			named := func(p architecture.Param) bool { return p.Name == name }
			if !slices.ContainsFunc(m.Params, named) {
				t.Fatalf("the model has no parameter %s", name)
			}
		}
		return m
	}
	typesEqual(t, fmt.Sprintf("%s %v", client.Description().Name, settings), model)
}

func typesEqual(t *testing.T, what string, model func(only string) *export.Model) {
	t.Helper()
	for _, format := range []string{"compressed-tensors", "gguf", "mlx"} {
		what := what + " as " + format
		usual, refused := write(t, format, model("none"), export.Options{})
		for _, only := range append(slices.Sorted(maps.Keys(peculiar)), "") {
			got, err := write(t, format, model(only), export.Options{})
			switch {
			case refused != nil && (err == nil || firstReason(err) != firstReason(refused)):
				t.Errorf("%s: %q: %v, and of random matrices %v", what, only, err, refused)
			case refused != nil:
			case err != nil:
				t.Errorf("%s: %q: %v", what, only, err)
			case !got.Exact:
				t.Errorf("%s: %q: not exact", what, only)
			default:
				for i, tensor := range got.Tensors {
					if want := usual.Tensors[i]; tensor.Type != want.Type || tensor.Quantized != want.Quantized {
						t.Errorf("%s: %q: %s is %s, and of random matrices %s", what, only, tensor.Name, tensor.Type,
							want.Type)
					}
				}
			}
			if refused != nil {
				break // one is enough
			}
		}
	}
}

// firstReason returns the first line of a refusal that states a reason.
func firstReason(err error) string {
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "    ") {
			return line
		}
	}
	return err.Error()
}

// quantized runs a quantizer's program for evaluation.
func quantized(
	t *testing.T, dev *conformance.Device, q spec.Quantizer, x []float32, dims []int,
) *export.Quantized {
	t.Helper()
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	inputs := map[string]reference.Tensor{spec.InputX: reference.Floats(wide, dims...)}
	if q.Init != nil {
		initial, err := dev.Run(q.Init, inputs)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(inputs, initial)
	}
	q = q.ForEvaluation()
	out, err := dev.Run(q.Program, inputs)
	if err != nil {
		t.Fatal(err)
	}
	single := func(name string) (list []float32) {
		for _, v := range out[name].Float64s() {
			list = append(list, float32(v))
		}
		return list
	}
	e := &export.Quantized{Value: single(spec.OutputValue), Scale: single(spec.OutputScale),
		ScaleShape: out[spec.OutputScale].Type.Shape, Grid: q.Grid}
	for _, c := range out[spec.OutputCodes].Float64s() {
		e.Codes = append(e.Codes, int32(math.Round(c)))
	}
	if strings.Contains(q.Program.String(), "hadamard") {
		e.Rotation = 32
	}
	return e
}
