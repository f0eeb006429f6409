package quantize_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// saved is a checkpoint with quantizers, as cage_torch.save writes it.
type saved struct {
	dir     string
	layout  []huggingface.Mapping // the quantized ones
	layers  map[string]any
	tensors map[string][]float32
}

func (s *saved) write(t *testing.T, metadata map[string]string) {
	t.Helper()
	var list []safetensors.Tensor
	for name, values := range s.tensors {
		shape := []int{}
		if len(values) != 1 {
			shape = []int{len(values)}
		}
		tensor, err := safetensors.New(name, shape, values)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tensor)
	}
	if metadata == nil {
		text, err := json.Marshal(map[string]any{"version": 1, "layers": s.layers})
		if err != nil {
			t.Fatal(err)
		}
		metadata = map[string]string{"cage_torch": string(text)}
	}
	path := vfs.At(filepath.Join(s.dir, "quantizers.cage"))
	if err := safetensors.WriteFile(t.Context(), path, list, metadata); err != nil {
		t.Fatal(err)
	}
}

// learned returns a checkpoint of a Llama whose layers have LSQ, with a step of its own for each.
func learned(t *testing.T, of string, given map[string]any) *saved {
	t.Helper()
	_, dir := testrun.FromHub(t)
	c, err := huggingface.ReadConfig(vfs.At(dir), 16)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := huggingface.Layout(c.Settings)
	if err != nil {
		t.Fatal(err)
	}
	client, err := testrun.Finder(t).Start(t.Context(), "lsq", sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	values, err := client.Resolve(given)
	if err != nil {
		t.Fatal(err)
	}
	s := &saved{dir, nil, map[string]any{}, map[string][]float32{}}
	for i, m := range layout {
		if !m.Param.Quantized {
			continue
		}
		layer := strings.TrimSuffix(m.Tensor, ".weight")
		dims := []int{len(m.Rows), m.Param.Dims[1]}
		q, err := client.Quantize(t.Context(), sdk.Site{Role: sdk.RoleWeight, Name: layer, Shape: dims,
			Values: values, Layers: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.layout = append(s.layout, m)
		s.layers[layer] = map[string]any{of: map[string]any{"plugin": "lsq", "settings": given,
			"program": q.ForEvaluation().Program.Hash()}}
		s.tensors[layer+"."+of+".trained.step"] = []float32{0.01 + float32(i)/4096}
	}
	return s
}

// TestPyTorch checks that an imported weight is the one that PyTorch trained with, layer by layer,
// also where one weight of cage has the rows of three layers with a step each.
func TestPyTorch(t *testing.T) {
	s := learned(t, "weight", map[string]any{"bits": 3})
	s.write(t, nil)
	out := filepath.Join(t.TempDir(), "run")
	c, result, err := quantize.Import(t.Context(), s.dir,
		quantize.Options{Out: out, Context: 16, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Config.Warnings) > 0 || result == nil || len(result.Matrices)*7 != len(s.layout)*5 {
		t.Errorf("%v, %+v", c.Config.Warnings, result)
	}
	m, err := open(t, out, trained.Options{Export: true, Finder: testrun.Finder(t)}).Export()
	if err != nil {
		t.Fatal(err)
	}
	original, err := huggingface.Open(vfs.At(s.dir), huggingface.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer original.Close()
	for _, l := range s.layout {
		x, err := original.Values(l.Param.Name)
		if err != nil {
			t.Fatal(err)
		}
		q, err := m.Quantized(l.Param.Name)
		if err != nil {
			t.Fatal(err)
		}
		step := s.tensors[strings.TrimSuffix(l.Tensor, "weight")+"weight.trained.step"][0]
		columns := l.Param.Dims[1]
		for _, row := range l.Rows {
			if q.Scale[row] != step {
				t.Fatalf("%s: the scale of row %d is %v, want %v", l.Tensor, row, q.Scale[row], step)
			}
			for i, v := range x[row*columns:][:columns] {
				want := float32(min(max(math.RoundToEven(float64(v/step)), -4), 3)) * step
				if got := q.Value[row*columns+i]; got != want {
					t.Fatalf("%s: Q(%v) is %v, want %v", l.Tensor, v, got, want)
				}
			}
		}
	}
	again := quantize.Options{Out: filepath.Join(t.TempDir(), "again"), Plugin: "absmax"}
	if _, err := quantize.Run(t.Context(), out, again); err == nil ||
		!strings.Contains(err.Error(), "quantized already") {
		t.Errorf("quantized again: %v", err)
	}
}

// TestPyTorchInputs checks that quantizers of inputs without state become the run's, and that the
// import tells of others.
func TestPyTorchInputs(t *testing.T) {
	s := learned(t, "input", map[string]any{})
	result := func() *trained.Posttrained {
		s.write(t, nil)
		c, result, err := quantize.Import(t.Context(), s.dir,
			quantize.Options{Context: 16, Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		warned := strings.Contains(fmt.Sprint(c.Config.Warnings), "PyTorch quantized the inputs")
		if warned == result.Activations {
			t.Errorf("quantizes activations: %v, warnings: %v", result.Activations, c.Config.Warnings)
		}
		return result
	}
	if result().Activations {
		t.Error("LSQ has a step for each layer")
	}
	for layer := range s.layers {
		s.layers[layer] = map[string]any{"input": map[string]any{"plugin": "mxfp4"}}
	}
	if !result().Activations {
		t.Error("MXFP4 has no state, and activations are not quantized")
	}
	for layer := range s.layers {
		delete(s.layers, layer)
		break
	}
	if result().Activations {
		t.Error("one layer has no quantizer, and activations are quantized")
	}
}

// TestPyTorchFaults checks that a file that does not fit is refused with what is wrong, and where,
// and that nothing is written.
func TestPyTorchFaults(t *testing.T) {
	const layer = "model.layers.1.self_attn.k_proj"
	record := func(s *saved) map[string]any {
		return s.layers[layer].(map[string]any)["weight"].(map[string]any)
	}
	for name, c := range map[string]struct {
		change func(s *saved)
		says   []string
	}{
		"missing layer": {func(s *saved) { delete(s.layers, layer) },
			[]string{"layer model.layers.1.self_attn.q_proj", "self_attn.k_proj is not"}},
		"layer of another model": {func(s *saved) { s.layers["lm_head"] = s.layers[layer] },
			[]string{"no linear layer lm_head"}},
		"missing tensor": {func(s *saved) { delete(s.tensors, layer+".weight.trained.step") },
			[]string{"layer " + layer, "there is no tensor " + layer + ".weight.trained.step"}},
		"shape": {func(s *saved) { s.tensors[layer+".weight.trained.step"] = []float32{1, 2} },
			[]string{"layer " + layer, "has shape [2], want []"}},
		"not finite": {func(s *saved) {
			s.tensors[layer+".weight.trained.step"] = []float32{float32(math.NaN())}
		}, []string{"layer " + layer, "NaN or infinite"}},
		"unknown plugin": {func(s *saved) { record(s)["plugin"] = "lsp" },
			[]string{"layer " + layer, "not found", `did you mean "lsq"?`}},
		"no plugin": {func(s *saved) { delete(record(s), "plugin") },
			[]string{"layer " + layer, "invalid plugin name"}},
		"plugin by its path": {func(s *saved) { record(s)["plugin"] = "./lsq" },
			[]string{"layer " + layer, `plugin "./lsq"`, "without a path"}},
		"an optimizer": {func(s *saved) { record(s)["plugin"] = "adamw" },
			[]string{"layer " + layer, "adamw"}},
		"setting": {func(s *saved) { record(s)["settings"] = map[string]any{"bits": 99} },
			[]string{"layer " + layer, "bits", "want an integer: 1 to 8"}},
		"setting of another type": {func(s *saved) {
			record(s)["settings"] = map[string]any{"bits": []int{4}}
		}, []string{"layer " + layer, "bits", "want an integer"}},
		"unknown setting": {func(s *saved) { record(s)["settings"] = map[string]any{"bit": 4} },
			[]string{"layer " + layer, "bit", "no such parameter"}},
		"refused setting": {func(s *saved) { record(s)["settings"] = map[string]any{"bits": 1} },
			[]string{"layer " + layer, "1 bit"}},
		"another program": {func(s *saved) { record(s)["settings"] = map[string]any{"bits": 4} },
			[]string{"layer " + layer, "not the one used in training"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := learned(t, "weight", map[string]any{"bits": 3})
			s.layers[layer] = map[string]any{"weight": maps.Clone(record(s))}
			c.change(s)
			s.write(t, nil)
			refused(t, s, append(c.says, "quantizers.cage")...)
		})
	}
	s := learned(t, "weight", map[string]any{})
	for text, says := range map[string]string{
		`{"version": 2}`: "of version 2 of the format, want 1",
		`{"layers": 3}`:  "metadata, cage_torch: layers: found a number",
		`{`:              "metadata, cage_torch",
	} {
		s.write(t, map[string]string{"cage_torch": text})
		refused(t, s, "quantizers.cage", says)
	}
	s.write(t, map[string]string{})
	refused(t, s, "no entry cage_torch: want a file of cage_torch.save")
	if err := os.WriteFile(filepath.Join(s.dir, "quantizers.cage"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, s, "quantizers.cage", "too few for a header")
}

func refused(t *testing.T, s *saved, says ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	_, _, err := quantize.Import(t.Context(), s.dir,
		quantize.Options{Out: out, Context: 16, Finder: testrun.Finder(t)})
	for _, text := range says {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	if exists, _ := rundir.At(out).Exists(); exists {
		t.Error("there is a run")
	}
}
