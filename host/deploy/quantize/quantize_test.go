package quantize_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// fullPrecision trains a run without quantization.
func fullPrecision(t *testing.T) *config.Config {
	t.Helper()
	cfg := testrun.Config(t, `quantizer.plugin="none"`, `method.form="off"`)
	testrun.Train(t, cfg, train.Options{})
	return cfg
}

// gptqOptions returns the options of the command, with fewer texts.
func gptqOptions(t *testing.T, plugin string, params map[string]any) quantize.Options {
	t.Helper()
	return quantize.Options{
		Quantization: posttrain.Quantization{Settings: posttrain.Settings{Method: posttrain.GPTQ,
			Damping: 0.01, Scales: posttrain.AutoScales}, Windows: 64},
		Plugin: plugin, Params: params, Out: filepath.Join(t.TempDir(), "out"),
		Finder: testrun.Finder(t)}
}

type quantizerCase struct {
	plugin string
	params map[string]any
}

func run(t *testing.T, dir string, o quantize.Options) *trained.Posttrained {
	t.Helper()
	result, err := quantize.Run(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func open(t *testing.T, dir string, o trained.Options) *trained.Model {
	t.Helper()
	opened, err := trained.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened
}

// TestGPTQ checks for several quantizers that GPTQ changes the outputs of no layer of a trained
// model more than rounding, and those of all layers together less.
func TestGPTQ(t *testing.T) {
	cfg := fullPrecision(t)
	cases := map[string]quantizerCase{
		"absmax": {"absmax", nil},
		"absmax in groups": {"absmax", map[string]any{"granularity": "group", "group": int64(8),
			"grid": "gptq"}},
		"absmax centred": {"absmax", map[string]any{"grid": "centred", "bits": int64(3)}},
		"quest":          {"quest", nil},
		"quest official": {"quest", map[string]any{"form": "official"}},
		"mxfp4":          {"mxfp4", nil},
		"mxfp4 absmax34": {"mxfp4", map[string]any{"scale_rule": "absmax34"}},
		"nvfp4":          {"nvfp4", nil},
		"nvfp4 encode":   {"nvfp4", map[string]any{"scale_form": "encode"}},
		"lsq":            {"lsq", nil},
		"paretoq":        {"paretoq", nil},
	}
	if testing.Short() {
		maps.DeleteFunc(cases,
			func(name string, _ quantizerCase) bool { return name != "absmax" && name != "mxfp4" })
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := gptqOptions(t, c.plugin, c.params)
			result := run(t, cfg.Train.Out, o)
			got, than := 0.0, 0.0
			for _, m := range result.Matrices {
				if m.OutputError > m.RoundingError || m.Fallback {
					t.Errorf("%s: error %v, that of rounding is %v", m.Name, m.OutputError, m.RoundingError)
				}
				got, than = got+m.OutputError, than+m.RoundingError
			}
			if len(result.Matrices) != 5 || !(got < 0.8*than) {
				t.Errorf("%d matrices with the error %v, that of rounding is %v", len(result.Matrices), got,
					than)
			}
			checkHeld(t, cfg, o.Out)
		})
	}
}

// checkHeld checks that the run of a quantized model is evaluated without a quantizer, on the
// validation set of the original run.
func checkHeld(t *testing.T, from *config.Config, dir string) {
	t.Helper()
	held, err := config.Load(rundir.At(dir).Config().Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !held.Untrained() || held.Quantizer.Weights != nil || held.Quantizer.Activations != nil ||
		held.Data.Validation != from.Data.Validation {
		t.Errorf("the configuration is %+v", held)
	}
	log := &strings.Builder{}
	opened := open(t, dir,
		trained.Options{Finder: testrun.Finder(t), Logger: hclog.New(&hclog.LoggerOptions{Output: log})})
	if loss, tokens, err := opened.Evaluate(t.Context(), 2); err != nil || !(loss > 0 && loss < 8) ||
		tokens == 0 || log.Len() > 0 {
		t.Errorf("loss %v over %d tokens, error %v, messages %s", loss, tokens, err, log)
	}
}

// TestQuantizeOwn checks that the weights of a run that was trained with a quantizer become its
// Q(x), so that both runs have the same loss. The quantizer of activations stays on request.
func TestQuantizeOwn(t *testing.T) {
	cfg := testrun.Config(t)
	testrun.Train(t, cfg, train.Options{})
	o := gptqOptions(t, "", nil)
	o.Method, o.Windows, o.Activations = posttrain.RTN, 0, true
	run(t, cfg.Train.Out, o)
	var losses []float64
	for _, dir := range []string{cfg.Train.Out, o.Out} {
		opened, err := trained.Open(t.Context(), dir, trained.Options{Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		loss, _, err := opened.Evaluate(t.Context(), 2)
		opened.Close()
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	// Only one of the runs computes rotations that cancel.
	if relative(losses[1], losses[0]) > 1e-3 {
		t.Errorf("the loss is %v, that of the run %v", losses[1], losses[0])
	}
}

// TestQuantizeOperands checks that a run's own quantizers of operands of attention and of the head
// are used in calibration and in the result. Without a request, neither has them.
func TestQuantizeOperands(t *testing.T) {
	const operand = `={plugin="absmax", bits=2}`
	cfg := testrun.Config(t, "train.steps=2", "train.final_eval_batches=0", "train.eval_batches=0",
		"quantizer.keys"+operand, "quantizer.values"+operand, "quantizer.queries"+operand,
		`quantizer.head={plugin="absmax", bits=8}`)
	testrun.Train(t, cfg, train.Options{})
	// quantized returns the new run, and the error of the layer behind attention.
	quantized := func(activations bool) (dir string, outputError float64) {
		o := gptqOptions(t, "", nil)
		o.Method, o.Activations = posttrain.RTN, activations
		for _, m := range run(t, cfg.Train.Out, o).Matrices {
			if m.Name == "layers.0.attn.out" {
				outputError = m.OutputError
			}
		}
		return o.Out, outputError
	}
	dir, all := quantized(true)
	loss := func(dir string) float64 {
		loss, _, err := open(t, dir, trained.Options{Finder: testrun.Finder(t)}).Evaluate(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return loss
	}
	if got, want := loss(dir), loss(cfg.Train.Out); relative(got, want) > 1e-3 {
		t.Errorf("the loss is %v, that of the run %v", got, want)
	}
	if head, err := exportOf(t, dir).Quantized("head"); err != nil || head == nil {
		t.Errorf("the head is %v: %v", head, err)
	}
	_, none := quantized(false)

	// The same run without the tables of the operands.
	path := rundir.At(cfg.Train.Out).Config()
	text, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "[quantizer.keys]")
	_, after, found := strings.Cut(rest, "[optimizer]")
	if !found {
		t.Fatalf("no tables of operands in\n%s", text)
	}
	testfile.Write(t, path.Name, before+"[optimizer]"+after)
	if _, got := quantized(true); relative(got, all) < 0.01 {
		t.Errorf("the error is %v with and %v without quantized operands, want another", all, got)
	}
	if _, got := quantized(false); got != none {
		t.Errorf("without activations the error is %v, want %v", none, got)
	}
}

// TestQuantizeInterrupted checks that an interruption leaves no files, and that remains of a killed
// process are replaced.
func TestQuantizeInterrupted(t *testing.T) {
	testlevel.Long(t, "quantizes several models")
	cfg := fullPrecision(t)
	o := gptqOptions(t, "absmax", nil)
	ctx, cancel := context.WithCancel(t.Context())
	o.Logger = hclog.New(&hclog.LoggerOptions{Output: writerFunc(func(p []byte) {
		if strings.Contains(string(p), "block=1") {
			cancel()
		}
	})})
	if _, err := quantize.Run(ctx, cfg.Train.Out, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(o.Out))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := os.MkdirAll(filepath.Join(o.Out+".incomplete", "blocks", "more"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{atomicfile.Mark, "blocks/0.safetensors"} {
		testfile.Write(t, filepath.Join(o.Out+".incomplete", name), "")
	}
	o.Logger = nil
	run(t, cfg.Train.Out, o)
	left, err = os.ReadDir(o.Out)
	var names []string
	for _, f := range left {
		names = append(names, f.Name())
	}
	if want := []string{"checkpoints", "provenance.json", "run.toml", "summary.json"}; err != nil ||
		!slices.Equal(names, want) {
		t.Errorf("the run has %v, want %v, %v", names, want, err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// TestQuantizeTrained checks that the trained parameters of a run's own quantizer are used: the
// weights are those that the run exports.
func TestQuantizeTrained(t *testing.T) {
	testlevel.Long(t, "trains with two quantizers")
	for _, plugin := range []string{"lsq", "nvfp4"} {
		cfg := testrun.Config(t, `quantizer={weights={plugin="`+plugin+`"}}`, `method.form="off"`)
		testrun.Train(t, cfg, train.Options{})
		o := gptqOptions(t, "", nil)
		o.Method, o.Windows = posttrain.RTN, 0
		result := run(t, cfg.Train.Out, o)
		from, to := exportOf(t, cfg.Train.Out), exportOf(t, o.Out)
		for _, m := range result.Matrices {
			want, err := from.Quantized(m.Name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := to.Quantized(m.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Value, want.Value) || got.Grid != want.Grid || got.Grid.Format == "" ||
				!slices.Equal(got.Scale, want.Scale) {
				t.Errorf("%s: %s is not what the run exports", plugin, m.Name)
			}
		}
		if len(result.Matrices) != 5 {
			t.Errorf("%s: %d matrices", plugin, len(result.Matrices))
		}
	}
}

func exportOf(t *testing.T, dir string) *export.Model {
	t.Helper()
	opened := open(t, dir, trained.Options{NoData: true, Finder: testrun.Finder(t)})
	m, err := opened.Export()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestQuantizeHub checks that each weight of a Hugging Face checkpoint becomes Q of itself, and
// that other parameters do not change.
func TestQuantizeHub(t *testing.T) {
	const dir, step = "../../model/huggingface/testdata/llama32", 0.01
	o := gptqOptions(t, "grid", map[string]any{"step": step})
	o.Method, o.Windows, o.Context = posttrain.RTN, 0, 16
	result := run(t, dir, o)
	hub, err := huggingface.Open(vfs.At(dir), huggingface.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	tensors := testrun.Values(t, testrun.Newest(t, o.Out))
	for _, p := range hub.Params() {
		w, err := hub.Values(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		got := tensors["param/"+p.Name]
		if len(got) != len(w) {
			t.Fatalf("%s has %d elements", p.Name, len(got))
		}
		for i, v := range w {
			want := v
			if p.Quantized {
				want = float32(math.RoundToEven(float64(v/float32(step)))) * float32(step)
			}
			if got[i] != want {
				t.Fatalf("%s: element %d is %v, want %v", p.Name, i, got[i], want)
			}
		}
	}
	if len(result.Matrices) != 10 || result.Calibration != nil {
		t.Errorf("the report is %+v", result)
	}
}

// TestQuantizeIntoNameWithSlash checks that the name of the directory may end in a slash, which
// shells add.
func TestQuantizeIntoNameWithSlash(t *testing.T) {
	cfg := fullPrecision(t)
	o := gptqOptions(t, "absmax", nil)
	out := o.Out
	o.Method, o.Windows, o.Out = posttrain.RTN, 0, out+string(filepath.Separator)
	run(t, cfg.Train.Out, o)
	checkHeld(t, cfg, out)
}

// TestQuantizeLOTION checks that the result of a run of LOTION, without its quantizer of weights,
// can be opened, and so can one that names the method, as earlier versions wrote it.
func TestQuantizeLOTION(t *testing.T) {
	testlevel.Long(t, "trains and evaluates twice")
	cfg := testrun.Config(t, `quantizer={weights={plugin="absmax"}}`, `method={name="lotion"}`,
		"train.steps=2")
	testrun.Train(t, cfg, train.Options{})
	o := gptqOptions(t, "absmax", nil)
	o.Method, o.Windows = posttrain.RTN, 0
	run(t, cfg.Train.Out, o)
	checkHeld(t, cfg, o.Out)
	path := rundir.At(o.Out).Config()
	text, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "[method]")
	_, rest, found := strings.Cut(rest, "\n\n")
	if !found {
		t.Fatalf("no table behind [method] in\n%s", text)
	}
	before, _, _ := strings.Cut(string(text), "[method]")
	testfile.Write(t, path.Name, before+"[method]\nname = \"lotion\"\n\n"+rest)
	checkHeld(t, cfg, o.Out)
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

func TestMain(m *testing.M) { testrun.Main(m) }
