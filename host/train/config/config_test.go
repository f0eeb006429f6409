package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/architecture"
)

// small is the shortest configuration with free sizes.
const small = `[model]
layers = 2
width = 64
heads = 2
context = 32
[data]
train = "a.tok"
validation = "b.tok"
[train]
steps = 10
batch = 4
[schedule]
rate = 1e-3
`

// values compares configurations without the positions of their keys.
var values = cmp.Options{
	cmpopts.IgnoreUnexported(Config{}), cmp.AllowUnexported(Override{}),
	cmpopts.IgnoreFields(Plugin{}, "Table"),
}

func parse(t testing.TB, text string, overrides ...string) *Config {
	t.Helper()
	c, err := Parse("dir/demo.toml", []byte(text), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write writes a file and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	want := &Config{
		Model: architecture.Settings{Kind: "llama", Layers: 2, Width: 64, Heads: 2, Hidden: 256,
			Context: 32,
			KVHeads: 2, HeadSize: 32, RopeTheta: 10000, RopePairs: "interleaved",
			RopeScaling: architecture.ScalingLlama3, RopeFactor: 1, RopeLow: 1, RopeHigh: 4,
			RopeOriginal: 8192, NormEps: 1e-5, InitStd: 0.02, Head: "own"},
		Data: Data{Kind: KindText, Mismatch: "refuse", Documents: "joined", Packing: "first_fit",
			Epochs: 1, Train: []string{"a.tok"}, Validation: "b.tok", Seed: 1337},
		Train: Train{Steps: 10, Batch: 4, Accumulate: 1, LossMean: "token", Recompute: "none",
			MemoryCheck: "on", Clip: 1, WeightDecay: 0.1, Decay: "first", Rotations: "half",
			Requantize: "on",
			Average:    "off", AverageDecay: 0.999, EvalEvery: 200, EvalBatches: 32, LogEvery: 10,
			CheckpointMinutes: 10, Keep: 2,
			Out: filepath.Join("runs", "demo"), NaNPolicy: "skip", MaxSkipped: 10, SampleTokens: 64,
			SampleTemperature: 0.7},
		Schedule: cage.ScheduleSettings{Kind: "onecycle_cos", Rate: 1e-3, Warmup: 0.1, From: 0.01,
			Floor: 0.1, Decay: 0.1, Shape: "linear"},
		Method: cage.Settings{Name: "cage", Gradient: "quantized",
			CAGE: cage.CAGE{Form: cage.Off, Variant: cage.Paper, Lambda: 2, Silence: 0.9,
				Ramp: cage.Linear},
			LOTION: cage.DefaultLOTION, OsciReset: cage.DefaultOsciReset,
			PARQ: cage.DefaultPARQ, WinQ: cage.DefaultWinQ},
		Optimizer:   Optimizer{Plugin: Plugin{Name: "adamw"}, Rest: &Plugin{Name: "adamw"}},
		Diagnostics: cage.Diagnostics{Coordinates: 4096, Window: 32},
		Device: Device{Kind: "cpu", Count: 1, Shard: "none", Precision: "float32",
			TF32: "off", Attention: "auto", Kernels: "auto", Products: "float", Allocator: "default",
			Preallocate: "off", TimeoutMinutes: 30},
	}
	if diff := cmp.Diff(want, parse(t, small), values); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if form := parse(t, small+"[quantizer]\nplugin = "+
		"\"quest\"\n").Method.CAGE.Form; form != "decoupled" {
		t.Errorf("method.form of a quantized run is %q, want decoupled", form)
	}
}

func TestPresetsFillIn(t *testing.T) {
	const file = "[data]\ntrain = \"a\"\nvalidation = \"b\"\n[model]\npreset = %q\n"
	for _, p := range architecture.Presets() {
		vocab := map[string]int{architecture.KindLlama: 32000, architecture.KindOLMo2: 100352}[p.Kind]
		c := parse(t, strings.ReplaceAll(file, "%q", `"`+p.Name+`"`), `model.kind="`+p.Kind+`"`)
		if c.Model.Layers != p.Layers || c.Model.Heads != p.Heads || c.Model.Width != p.Width ||
			c.Model.Hidden != p.Hidden || c.Model.Vocab != vocab || c.Model.Context != 512 {
			t.Errorf("%s: model %+v", p.Name, c.Model)
		}
		if c.Train.Steps != p.Steps || c.Train.Batch != 64 || c.Train.Accumulate != 8 ||
			c.Schedule.Rate != p.Rate {
			t.Errorf("%s: train %+v, rate %g", p.Name, c.Train, c.Schedule.Rate)
		}
		if w := c.Schedule.WarmupSteps(c.Train.Steps); w != p.Warmup {
			t.Errorf("%s: warm-up of %d steps, want %d", p.Name, w, p.Warmup)
		}
		if h := architecture.SwiGLUHidden(p.Width); h != p.Hidden &&
			(p.Kind != architecture.KindOLMo2 || p.Name != "60M") {
			t.Errorf("%s: the SwiGLU rule gives %d, the preset has %d", p.Name, h, p.Hidden)
		}
	}
	c := parse(t, strings.ReplaceAll(file, "%q", `"30M"`), "train.steps=7", "model.vocab=0",
		"model.hidden=0", "schedule.rate=1")
	if c.Train.Steps != 7 || c.Model.Vocab != 0 || c.Model.Hidden != 1792 || c.Schedule.Rate != 1 {
		t.Errorf("the file's own settings lost to the preset: %+v", c)
	}
}

// TestPresetParameters checks the parameter counts, which the published runs record (30M, 50M,
// 100M) or which follow from the same formula.
func TestPresetParameters(t *testing.T) {
	want := map[string]int{"30M": 30_482_560, "50M": 49_556_736, "100M": 102_777_856,
		"200M": 203_188_480, "430M": 443_068_288, "800M": 822_151_168,
		"1700M": 1_734_192_768, "3200M": 3_171_068_928}
	got := map[string]int{}
	for _, p := range architecture.Presets() {
		if p.Kind == architecture.KindLlama {
			got[p.Name] = p.Parameters()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPluginTables(t *testing.T) {
	quest := &Plugin{Table: "quantizer", Name: "quest",
		Params: map[string]any{"bits": int64(4), "rotation": "auto"}}
	absmax := &Plugin{Table: "quantizer.weights", Name: "absmax"}
	const both = "[quantizer]\nplugin = \"quest\"\nbits = 4\nrotation = \"auto\"\n"
	for name, c := range map[string]struct {
		text      string
		overrides []string
		want      Quantizer
	}{
		"absent":     {"", nil, Quantizer{}},
		"both roles": {both, nil, Quantizer{Weights: quest, Activations: quest}},
		"role overrides": {both + "[quantizer.weights]\nplugin = \"absmax\"\n", nil,
			Quantizer{Weights: absmax, Activations: quest}},
		"role off": {both + "[quantizer.weights]\nplugin = \"none\"\nbits = 3\n", nil,
			Quantizer{Activations: quest}},
		"one role only": {"[quantizer.weights]\nplugin = \"absmax\"\n", nil,
			Quantizer{Weights: absmax}},
		"under an empty": {"[quantizer]\n[quantizer.weights]\nplugin = \"absmax\"\n", nil,
			Quantizer{Weights: absmax}},
		"switched off": {both, []string{`quantizer.plugin="none"`}, Quantizer{}},
		"inline, override": {both, []string{`quantizer.weights={plugin="absmax"}`},
			Quantizer{Weights: absmax, Activations: quest}},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, small+c.text, c.overrides...).Quantizer
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPluginParams(t *testing.T) {
	c := parse(t, small+`[optimizer]
plugin = "./plugins/mine"
rate = 1
beta = 0.5
name = "x"
on = true
"odd key" = 3
`, "optimizer.beta=0.8", "optimizer.more=4")
	want := Plugin{Table: "optimizer", Name: "./plugins/mine", Params: map[string]any{
		"beta": 0.8, "more": int64(4), "name": "x", "odd key": int64(3), "on": true, "rate": int64(1),
	}}
	if diff := cmp.Diff(want, c.Optimizer.Plugin); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorAt(t *testing.T) {
	c := parse(t, small+"[optimizer]\nplugin = \"adamw\"\nbeta3 = 0.9\n\"a.b\" = 1\n",
		"optimizer.eps=1")
	for key, want := range map[string]string{
		c.Optimizer.Path("beta3"): "dir/demo.toml:16: optimizer.beta3: no such parameter",
		c.Optimizer.Path("a.b"):   `dir/demo.toml:17: optimizer."a.b": no such parameter`,
		c.Optimizer.Path("eps"):   "--set optimizer.eps=1: optimizer.eps: no such parameter",
		"optimizer.beta1":         "dir/demo.toml:14: optimizer.beta1: no such parameter",
		"device.kind":             "dir/demo.toml:1: device.kind: no such parameter",
	} {
		if got := c.ErrorAt(key, "no such %s", "parameter").Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	e := c.ErrorAt("optimizer.beta3", "unknown parameter")
	e.Hint = `did you mean "beta1"?`
	if want := `dir/demo.toml:16: optimizer.beta3: unknown parameter; did you mean "beta1"?`; e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	if got := new(Config).ErrorAt("train.out", "full").Error(); got != "train.out: full" {
		t.Errorf("of a Config that was not loaded: %s", got)
	}
}

func TestOverridesReplace(t *testing.T) {
	c := parse(t, small+"train.keep = 3\n", "train.steps=50", "train.steps = 60 # twice", "seed=3",
		`data={train="x", validation="y"}`, "schedule={rate=1}", "model.hidden=128")
	if c.Train.Steps != 60 || c.Seed != 3 || c.Data.Train[0] != "x" || c.Schedule.Rate != 1 ||
		c.Model.Hidden != 128 {
		t.Errorf("%+v", c)
	}
}

// TestSetBelow checks that keys within a table that an override gives count as set.
func TestSetBelow(t *testing.T) {
	c := parse(t, small, "method={strength=0.5}", `optimizer={plugin="sgd", groups=[{match="*", rate=0.5}]}`)
	for _, key := range []string{"method.strength", "optimizer.groups[0].rate"} {
		if !c.IsSet(key) {
			t.Errorf("%s does not count as set", key)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	parse(t, "\ufeff"+small)
}

// problem is the shortest configuration of a problem without data.
const problem = `[model]
kind = "quadratic"
dimension = 2
[train]
steps = 10
[schedule]
rate = 1e-3
`

func TestProblem(t *testing.T) {
	c := parse(t, problem, "model.rows=2", "model.spectrum=[0.5, 1]", "model.optimum=[1, 2, 3.5, -4]")
	want := architecture.Settings{Kind: architecture.KindQuadratic, Dimension: 2, Rows: 2,
		Condition: 10, Spectrum: []float64{0.5, 1},
		Optimum: []float64{1, 2, 3.5, -4}, StartStd: 1, Noise: 0.01, Context: 1}
	if diff := cmp.Diff(want, c.Model); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	if c.Train.Clip != 0 || c.Train.Batch != 1 || c.Train.TrajectoryEvery != 10 ||
		c.Train.WeightDecay != 0 || !reflect.DeepEqual(c.Data, Data{}) {
		t.Errorf("a problem is not clipped, has no batches, decay or data: %+v, %+v", c.Train, c.Data)
	}
	roundTrip(t, c)
	text := string(c.Encode())
	for _, foreign := range []string{"[data]", "layers", "batch", "context", "start = "} {
		if strings.Contains(text, foreign) {
			t.Errorf("there is %q in\n%s", foreign, text)
		}
	}
	toy := parse(t, strings.Replace(problem, `"quadratic"`+"\ndimension = 2", `"toy"`+"\nstart = 3",
		1))
	if m := toy.Model; m.Dimension != 1 || m.Rows != 1 || m.Noise != 0 ||
		!cmp.Equal(m.Start, []float64{3}) {
		t.Errorf("toy: %+v", m)
	}
	roundTrip(t, toy)
}

func TestOLMo2Defaults(t *testing.T) {
	c := parse(t, small, `model.kind="olmo2"`)
	if c.Model.KVHeads != 2 || c.Model.RopePairs != "half" || c.Model.RopeFactor != 1 {
		t.Errorf("model %+v", c.Model)
	}
	if c.Model.NormEps != 1e-6 || c.Model.RopeTheta != 500000 || c.Model.InitStd != 0.02 ||
		c.Train.Clip != 1 {
		t.Errorf("model %+v, clip %v", c.Model, c.Train.Clip)
	}
}

// TestFormFollowsOverrides checks that weights which only an override quantizes are corrected, too.
func TestFormFollowsOverrides(t *testing.T) {
	const only = "[[quantizer.overrides]]\nmatch = \"*\"\nplugin = \"absmax\"\n"
	for text, want := range map[string]cage.Form{
		only: "decoupled", only + "role = \"activations\"\n": "off", only +
			"role = \"weights\"\n": "decoupled",
		"[[quantizer.overrides]]\nmatch = \"*\"\nplugin = \"none\"\n":     "off",
		only + "[method]\nname = \"lotion\"\n":                            "off",
		only + "[method]\nname = \"off\"\nlambda = 1\npareto_every = 5\n": "off",
		only + "[method]\nform = \"off\"\n":                               "off",
	} {
		if got := parse(t, small+text).Method.CAGE.Form; got != want {
			t.Errorf("method.form is %q, want %q, with\n%s", got, want, text)
		}
	}
}

func TestMethods(t *testing.T) {
	const weights = "[quantizer.weights]\nplugin = \"absmax\"\n"
	c := parse(t, small+weights, `method={name="lotion", coeff=10, fisher_decay=0.9, bits=3}`)
	want := cage.Settings{Name: "lotion", Gradient: "quantized",
		CAGE: cage.CAGE{Form: cage.Off, Variant: cage.Paper, Lambda: 2, Silence: 0.9,
			Ramp: cage.Linear},
		LOTION:    cage.LOTION{Coeff: 10, FisherDecay: 0.9, Bits: 3, Denom: "power"},
		OsciReset: cage.DefaultOsciReset, PARQ: cage.DefaultPARQ, WinQ: cage.DefaultWinQ}
	if diff := cmp.Diff(want, c.Method); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Only the keys of the selected method are written.
	text := string(c.Encode())
	section := "\n[method]\nname = \"lotion\"\ncoeff = 10.0\nfisher_decay = 0.9\nbits = 3\ndenom = " +
		"\"power\"\n\n"
	if !strings.Contains(text, section) {
		t.Errorf("no %q in\n%s", section, text)
	}
	diffs := Diff(parse(t, small+weights, "method.silence=0.5", `method.name="cage"`), c)
	if diffs[0] != (Difference{"method.name", `"cage"`, `"lotion"`}) || len(diffs) != 12 {
		t.Errorf("Diff: %v", diffs)
	}
}
