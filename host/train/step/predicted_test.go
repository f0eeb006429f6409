package step_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// predictVariable is the environment variable with the path of a Python that has JAX and its plugin
// for CUDA; scripts/predict.sh sets it.
const predictVariable = "CAGE_TEST_PREDICT"

// pythonForGPUs returns the path of that Python, and skips the test if there is none.
func pythonForGPUs(t *testing.T) string {
	t.Helper()
	python := os.Getenv(predictVariable)
	if python == "" {
		t.Skip("there is no XLA for GPUs: make predict installs it, and sets " + predictVariable)
	}
	return python
}

// predicted is the output of scripts/predict.py for a program that XLA compiled for a GPU.
type predicted struct {
	Aliases, States int64 // bytes
	Kernels         int
	Transposes      []string `json:"transposes_beside_rotations"`
	Groups          map[string]struct{ Kernels int }
}

// predict makes XLA compile the step with the correction for a GPU, in bfloat16 with fused
// attention. Rotations of blocks of 512 take more than one product.
func predict(t *testing.T, kernels device.Kernels, overrides ...string) predicted {
	t.Helper()
	python := pythonForGPUs(t)
	dev, r, err := pjrtrecord.Open(t, 1,
		engine.Options{Precision: device.BFloat16, Attention: device.FusedAttention, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"model.vocab=512", "model.width=512", "model.heads=4", "model.hidden=768",
		"model.context=128", `device={kind="cuda", precision="bfloat16"}`}
	program := stepProgram(t, dev, r, append(all, overrides...)...)
	var p predicted
	if err := json.Unmarshal(compileFor(t, python, "compile", program), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// stepProgram returns the step with the correction as the program that XLA gets.
func stepProgram(
	t *testing.T, dev *engine.Device, r *pjrtrecord.Recorder, overrides ...string,
) (program string) {
	t.Helper()
	c := compileOn(t, dev,
		testrun.Plan(t, testrun.Config(t, append([]string{testrun.TwoLayers}, overrides...)...)))
	if err := c.Prepare(false); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Programs(t) {
		if strings.HasPrefix(p, "module @step") {
			program = p // the last one has the correction
		}
	}
	return program
}

// compileFor makes XLA compile a program for a GPU, by default an H200, and returns the output of a
// command of scripts/predict.py.
func compileFor(t *testing.T, python, command, program string, gpu ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "program.mlir")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	gpu = slices.DeleteFunc(gpu, func(name string) bool { return name == "" })
	c := exec.Command(python,
		append([]string{"../../../scripts/predict.py", command, path, filepath.Join(dir, "dump")},
			gpu...)...)
	var said bytes.Buffer
	c.Stderr = &said
	text, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", c, err, text, &said)
	}
	t.Logf("%s", text)
	return text
}

// TestPredicted checks that, on a GPU, all parameters and states are updated in place, rotations
// need no transpositions, and attention is fused, forward and backward in each of the two blocks.
func TestPredicted(t *testing.T) {
	for _, quantizer := range []string{"quest", "lsq"} {
		t.Run(quantizer, func(t *testing.T) {
			p := predict(t, device.GraphKernels, `quantizer={plugin="`+quantizer+`"}`)
			p.check(t)
			if len(p.Transposes) > 0 {
				t.Errorf("what rotations read or write is transposed by %q", p.Transposes)
			}
			if n := p.Groups["rotation products"].Kernels; (n > 0) != (quantizer == "quest") {
				t.Errorf("%d kernels rotate", n)
			}
		})
	}
}

// TestPredictedDocuments checks a step in which documents in one row are kept separate.
func TestPredictedDocuments(t *testing.T) {
	predict(t, device.FusedKernels, `quantizer={plugin="quest"}`, `data.documents="separate"`).check(t)
}

// check checks the updates in place and the fused attention of every step.
func (p predicted) check(t *testing.T) {
	t.Helper()
	if p.Aliases != p.States || p.States == 0 {
		t.Errorf("%d bytes are updated in place, and parameters and states have %d", p.Aliases, p.States)
	}
	if n := p.Groups["attention"].Kernels; n != 4 {
		t.Errorf("%d kernels of attention, want 4", n)
	}
}

// TestPredictedKernels checks that XLA compiles the kernels of every quantizer for a GPU, in
// float32 for weights and in bfloat16 for activations, with at least one forward and one backward
// kernel for each activation. Products rotate only where a kernel needs a number of the whole
// rotated tensor.
func TestPredictedKernels(t *testing.T) {
	const blocks, sites = 2, 4
	for _, settings := range quantizers {
		t.Run(strings.ReplaceAll(settings, ",", ""), func(t *testing.T) { // part of a plugin's path
			p := predict(t, device.FusedKernels, "quantizer="+settings)
			p.check(t)
			if n := p.Groups["quantization"].Kernels; n < 2*blocks*sites {
				t.Errorf("%d kernels quantize, want at least %d", n, 2*blocks*sites)
			}
			most := 0
			if strings.Contains(settings, `"nvfp4", rotation`) {
				most += 2 * blocks * sites // each activation and each gradient
			}
			if n := p.Groups["rotation products"].Kernels; n > most {
				t.Errorf("%d kernels rotate, want at most %d", n, most)
			}
		})
	}
}

// TestPredictedPresets checks that, at the widths of all presets, the kernels of every quantizer,
// for activations in bfloat16 and weights in float32, allow 16 warps on a multiprocessor and spill
// few registers. With -update it writes the table of one width into docs/lab/gpu.md.
func TestPredictedPresets(t *testing.T) {
	python := pythonForGPUs(t)
	const batch = 64
	var pages [][]ownKernel
	for _, settings := range quantizers {
		t.Run(strings.ReplaceAll(settings, ",", ""), func(t *testing.T) { // part of a plugin's path
			var list []passed
			known := map[string]bool{}
			add := func(name string, shape []int, q *fakequant.Quantizer, activation bool) {
				if q == nil || known[fmt.Sprint(shape[len(shape)-1], activation)] {
					return
				}
				known[fmt.Sprint(shape[len(shape)-1], activation)] = true
				if rotated, err := q.KeepRotated(); err != nil {
					t.Fatal(err)
				} else if rotated != nil && rotated.Saved > 0 { // as steps do if rotations match
					q = rotated.Quantizer
				}
				list = append(list, passed{fmt.Sprint(name, len(list)), shape, q, activation})
			}
			for _, p := range architecture.Presets() {
				plan := testrun.Plan(t, testrun.Config(t, "model.layers=1", "model.vocab=32", "model.heads=1",
					fmt.Sprint("model.width=", p.Width),
					fmt.Sprint("model.hidden=", p.Hidden), fmt.Sprint("model.context=", p.Context),
					fmt.Sprint("train.batch=", batch), "quantizer="+settings))
				for _, s := range plan.Model.ActivationSites(batch, p.Context) {
					add(s.Name, []int{s.Tokens, s.Width}, plan.Activations[s.Name], true)
				}
				for _, r := range plan.Rules {
					add(r.Name, r.Shape, plan.Weights[r.Name], false)
				}
			}
			var rows []ownKernel
			decoder := json.NewDecoder(
				bytes.NewReader(compileFor(t, python, "own", bothPasses(t, list),
					os.Getenv("CAGE_TEST_PREDICT_GPU"))))
			for decoder.More() {
				k := ownKernel{Settings: settings}
				if err := decoder.Decode(&k); err != nil {
					t.Fatal(err)
				}
				const least, spilled = 16, 128
				if k.Warps < least || k.Spilled > spilled {
					t.Errorf("%s of %s allows %d warps and spills %d bytes", k.Name, k.Result, k.Warps, k.Spilled)
				}
				rows = append(rows, k)
			}
			if len(rows) < len(list) {
				t.Errorf("%d kernels for %d tensors", len(rows), len(list))
			}
			pages = append(pages, rows)
		})
	}
	if *rewrite && !t.Failed() {
		writeKernelsOfPresets(t, pages)
	}
}

// ownKernel is the output of scripts/predict.py for one of cage's own kernels: Instructions per
// warp for 32 elements; Bytes and Issue are times in microseconds.
type ownKernel struct {
	Settings, Name, Result     string
	Instructions, Bytes, Issue float64
	Registers, Warps, Spilled  int
}

const kernelsOfPresetsPage = "../../../docs/lab/gpu.md"

// Markers and head of the table of presets' kernels on that page.
const (
	kernelsOfPresetsBegin = "<!-- kernels, written by: scripts/predict.sh --kernels -->\n"
	kernelsOfPresetsEnd   = "<!-- /kernels -->\n"
	kernelsOfPresetsHead  = `| quantizer | forward: instructions | µs: bytes | µs: issue | backward: instructions | µs: bytes | µs: issue |
|---|---|---|---|---|---|---|
`
)

// writeKernelsOfPresets writes the table of activation kernels at the width of the preset 430M,
// with a row for each quantizer.
func writeKernelsOfPresets(t *testing.T, pages [][]ownKernel) {
	t.Helper()
	const width = 1664
	table := kernelsOfPresetsHead
	for _, kernels := range pages {
		if strings.Contains(kernels[0].Settings, "weight_blocks") { // activations have no such blocks
			continue
		}
		passes := map[string]ownKernel{}
		for _, k := range kernels {
			var tokens, columns int
			if n, _ := fmt.Sscanf(k.Result, "bf16[%d,%d]", &tokens, &columns); n == 2 && columns == width {
				passes[k.Name[strings.LastIndex(k.Name, "_")+1:]] = k
			}
		}
		table += fmt.Sprintf("| `%s` |", kernels[0].Settings)
		for _, pass := range []string{"forward", "backward"} {
			k := passes[pass]
			table += fmt.Sprintf(" %.0f | %.0f | %.0f |", k.Instructions, k.Bytes, k.Issue)
		}
		table += "\n"
	}
	page, err := os.ReadFile(kernelsOfPresetsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), kernelsOfPresetsBegin)
	_, after, ends := strings.Cut(rest, kernelsOfPresetsEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %s and %s", kernelsOfPresetsPage, kernelsOfPresetsBegin,
			kernelsOfPresetsEnd)
	}
	text := before + kernelsOfPresetsBegin + table + kernelsOfPresetsEnd + after
	if err := os.WriteFile(kernelsOfPresetsPage, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPredictedJoined checks that no kernel, even XLA's own, needs more registers than it has in a
// step at the width of 430M with products of codes and with norms and gates joined to quantizers.
func TestPredictedJoined(t *testing.T) {
	python := pythonForGPUs(t)
	for _, settings := range []string{`{plugin="quest"}`,
		`{plugin="mxfp4", rotation="32", scale_rule="quest"}`, `{plugin="nvfp4", rotation="16"}`,
		`{plugin="absmax"}`, `{plugin="lsq"}`} {
		t.Run(strings.ReplaceAll(settings, ",", ""), func(t *testing.T) {
			dev, r, err := pjrtrecord.Open(t, 1,
				engine.Options{Precision: device.BFloat16, Attention: device.FusedAttention,
					Kernels: device.FusedKernels, Products: device.IntegerProducts})
			if err != nil {
				t.Fatal(err)
			}
			program := stepProgram(t, dev, r, "model.vocab=1024", "model.heads=13", "model.layers=1",
				"model.width=1664", "model.hidden=4608",
				"model.context=128", `device={kind="cuda", precision="bfloat16", products="integer"}`,
				"quantizer="+settings)
			const sites = 4
			if n := strings.Count(program, "__gpu$xla.gpu.triton"); n < 2*sites {
				t.Errorf("%d kernels, want at least %d", n, 2*sites)
			}
			compileFor(t, python, "kernels", program)
		})
	}
}

// TestPredictedLoss checks that the loss is one kernel with enough registers where its rows fit,
// with the vocabularies of known models. With many tokens, training and evaluation loop over chunks
// of tokens.
func TestPredictedLoss(t *testing.T) {
	python := pythonForGPUs(t)
	for _, tc := range []struct {
		vocabulary, batch int
		evaluates         bool
	}{{32000, 2, false}, {32768, 2, false}, {50304, 2, false}, {128256, 2, false}, {151936, 2, false},
		{32000, 2048, false}, {32000, 2048, true}} {
		t.Run(fmt.Sprint(tc.vocabulary, tc.batch, tc.evaluates), func(t *testing.T) {
			m, err := model.New(architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 32,
				Heads: 1, Vocab: tc.vocabulary}, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			d, r, err := pjrtrecord.Open(t, 1,
				engine.Options{Precision: device.BFloat16, Kernels: device.FusedKernels,
					Attention: device.PlainAttention})
			if err != nil {
				t.Fatal(err)
			}
			const context = 64
			of := model.ProgramOptions{Shape: network.Shape{Batch: tc.batch, Context: context}}
			var wrt []string
			for _, p := range m.Params() {
				if !tc.evaluates {
					wrt = append(wrt, p.Name)
				}
			}
			p, err := m.Program(of, wrt...)
			if err != nil {
				t.Fatal(err)
			}
			s := stage.Stage{Name: "loss", Calls: m.Calls(of.Shape),
				Write: func(b *program.Builder, in stage.Values) stage.Values {
					return transform.Inline(b, p, lists.Map(p.Inputs,
						func(i program.Input) program.Value { return in[i.Name] })...)
				}}
			for _, in := range p.Inputs {
				dtype := shapes.Float32
				if in.Type.DType == program.Int {
					dtype = shapes.Int32
				}
				s.Inputs = append(s.Inputs,
					engine.Spec{Name: in.Name, Shape: shapes.Make(dtype, in.Type.Shape...)})
			}
			e, err := s.Compile(d, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.Close()
			programs := r.Programs(t)
			text := programs[len(programs)-1]
			kernel := strings.Contains(text, `name = "cage_loss_rows"`)
			// An evaluation needs no gradient, and longer rows do not fit.
			if want := !tc.evaluates && tc.vocabulary <= triton.LargestLoneRow; kernel != want {
				t.Errorf("there is a kernel of the loss: %v, want %v", kernel, want)
			}
			if loops, many := strings.Contains(text, "stablehlo.while"), tc.batch > 2; loops != many {
				t.Errorf("there are loops: %v, want %v", loops, many)
			}
			compileFor(t, python, "kernels", text)
		})
	}
}

// passed is a tensor for which both passes of its quantizer are compiled.
type passed struct {
	name       string
	shape      []int
	quantizer  *fakequant.Quantizer
	activation bool
}

// bothPasses returns a program with both passes of the quantizers of some tensors.
func bothPasses(t *testing.T, list []passed) string {
	t.Helper()
	d, r, err := pjrtrecord.Open(t, 1,
		engine.Options{Precision: device.BFloat16, Kernels: device.FusedKernels})
	if err != nil {
		t.Fatal(err)
	}
	var specs []engine.Spec
	for _, p := range list {
		specs = append(specs, engine.Spec{Name: p.name, Shape: shapes.Make(shapes.Float32, p.shape...)})
	}
	e, err := d.Compile("passes", specs, func(g *graph.Graph, in []*graph.Node) (out []*graph.Node) {
		for i, p := range list {
			initial := testquantizer.Lower(in[i:i+1], func(in []program.Value) []program.Value {
				return append(p.quantizer.Init(in[0], nil), in[0])
			})
			given := testquantizer.Given{Trained: initial[:len(initial)-1]}
			if p.activation {
				y, back := testquantizer.Quantize(in[i], given, p.quantizer)
				out = append(out, y, back(graph.MulScalar(y, 2))[0])
				continue
			}
			out = append(out, testquantizer.Lower(in[i:i+1], func(in []program.Value) []program.Value {
				given := fakequant.Given{}
				for k, v := range p.quantizer.Init(in[0], nil) {
					given[spec.TrainedPrefix+p.quantizer.Trained()[k].Name] = v
				}
				value, residuals, _ := p.quantizer.Forward(in[0], given, false)
				dx, _ := p.quantizer.Backward(in[0], value, given, residuals, value.Cos())
				return []program.Value{value, dx}
			})...)
		}
		return out
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	programs := r.Programs(t)
	return programs[len(programs)-1]
}
