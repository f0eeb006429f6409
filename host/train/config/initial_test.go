package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// hub is the directory of the Hugging Face checkpoints for tests.
const hub = "../../model/huggingface/testdata/"

// started returns a configuration that starts from init. more is added to its [model] table.
func started(init, more string) string {
	return "[model]\ninit = \"" + filepath.ToSlash(init) + "\"\n" + more + `
[data]
train = "a.tok"
validation = "b.tok"
[train]
steps = 10
batch = 2
[schedule]
rate = 1e-4
`
}

// hubConfig reads the values of a checkpoint's config.json that the tests compare.
func hubConfig(t *testing.T, name string) (c struct {
	Layers  int     `json:"num_hidden_layers"`
	Width   int     `json:"hidden_size"`
	Heads   int     `json:"num_attention_heads"`
	KVHeads int     `json:"num_key_value_heads"`
	Head    int     `json:"head_dim"`
	Hidden  int     `json:"intermediate_size"`
	Vocab   int     `json:"vocab_size"`
	Eps     float64 `json:"rms_norm_eps"`
	Theta   float64 `json:"rope_theta"`
	Tied    bool    `json:"tie_word_embeddings"`
	Rope    struct {
		Factor   float64 `json:"factor"`
		Low      float64 `json:"low_freq_factor"`
		High     float64 `json:"high_freq_factor"`
		Original int     `json:"original_max_position_embeddings"`
	} `json:"rope_scaling"`
}) {
	t.Helper()
	text, err := os.ReadFile(hub + name + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestInitSizes checks that a model that starts from a checkpoint has the sizes in its config.json.
func TestInitSizes(t *testing.T) {
	cfg := parse(t, started(hub+"llama32", "context = 64\nrope_pairs = \"half\""))
	c := hubConfig(t, "llama32")
	want := architecture.Settings{Kind: "llama", Layers: c.Layers, Width: c.Width, Heads: c.Heads,
		KVHeads: c.KVHeads, HeadSize: c.Head, Hidden: c.Hidden, Vocab: c.Vocab,
		Context: 64, NormEps: c.Eps, Head: "tied", RopeTheta: c.Theta, RopePairs: architecture.HalfSplit,
		RopeScaling: architecture.ScalingLlama3, RopeFactor: c.Rope.Factor, RopeLow: c.Rope.Low,
		RopeHigh:     c.Rope.High,
		RopeOriginal: c.Rope.Original, InitStd: 0.02}
	if !c.Tied || c.Layers == 0 || c.Rope.Factor == 0 {
		t.Fatalf("the config.json says %+v", c)
	}
	if diff := cmp.Diff(want, cfg.Model); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if m := parse(t, started(hub+"window", "context = 64")).Model; m.Window != 6 {
		t.Errorf("the window is not that of the checkpoint: %+v", m)
	}
	if m := parse(t, started(hub+"qwen3", "context = 8")).Model; m.Kind != architecture.KindQwen3 ||
		m.HeadSize != hubConfig(t, "qwen3").Head {
		t.Errorf("the kind is not that of the checkpoint: %+v", m)
	}
}

// TestNewTokens checks that model.new_tokens adds to the vocabulary of the initial model, and that
// the resolved configuration agrees.
func TestNewTokens(t *testing.T) {
	cfg := parse(t, started(hub+"llama32", "context = 64\nnew_tokens = 2\nnew_rows_from = 3"))
	for _, c := range []*Config{cfg, parse(t, string(cfg.Encode()))} {
		if c.Model.Vocab != 330 || c.NewTokens != 2 || c.NewRowsFrom == nil || *c.NewRowsFrom != 3 {
			t.Errorf("a vocabulary of %d, %d new, from %v", c.Model.Vocab, c.NewTokens, c.NewRowsFrom)
		}
	}
}

// TestInitResolved checks that the resolved configuration can be read without the checkpoint, and
// that another run can start from this run.
func TestInitResolved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(dir, os.DirFS(hub+"olmo2")); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, started(dir, "context = 16"))
	text := string(cfg.Encode())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	again := parse(t, text)
	if diff := cmp.Diff(cfg.Model, again.Model); diff != "" || again.Init != dir {
		t.Errorf("starts from %s, settings (-want +got):\n%s", again.Init, diff)
	}
	run := t.TempDir()
	write(t, run, RunFile, text)
	if diff := cmp.Diff(cfg.Model, parse(t, started(run, "")).Model); diff != "" {
		t.Errorf("settings of the run that starts from the other (-want +got):\n%s", diff)
	}
}

func TestInitProblems(t *testing.T) {
	run := t.TempDir()
	// This run has no sizes and starts from itself: nothing is read for it.
	write(t, run, RunFile, started(run, "context = 8"))
	other := t.TempDir()
	text := started("", "layers = 2\nwidth = 64\nheads = 4\ncontext = 8\nrope_pairs = \"half\"")
	write(t, other, RunFile, text)
	for name, test := range map[string]struct {
		init, more string
		want       []string // how the messages begin
	}{
		"other sizes": {hub + "llama32", "context = 64\nwidth = 128\nkind = \"qwen3\"\nhead = \"own\"",
			[]string{
				`run.toml:4: model.width: found the integer 128, but the model in ` + hub +
					`llama32 has 64; leave the key out`,
				`run.toml:5: model.kind: found the string "qwen3", but the model in ` + hub +
					`llama32 has llama`,
				`run.toml:6: model.head: found the string "own", but`,
			}},
		"a context beyond the positions": {hub + "llama32", "context = 513",
			[]string{`run.toml:3: model.context: found the integer 513, but the model in ` + hub +
				`llama32 has 512 positions; want at most as many`}},
		"no context": {hub + "llama32", "", []string{"run.toml:1: model.context: " +
			"missing; want an integer from 1 to 1048576: tokens per sequence"}},
		"a preset beside it": {hub + "llama32", "context = 64\npreset = \"30M\"",
			[]string{"run.toml:4: model.preset: found with model.init; leave one of them out"}},
		"other sizes with new tokens": {hub + "llama32", "context = 64\nnew_tokens = 2\nvocab = 328",
			[]string{`run.toml:5: model.vocab: found the integer 328, but the model in ` + hub +
				`llama32 has 330; leave the key out`}},
		"a row of a token that is new": {hub + "llama32",
			"context = 64\nnew_tokens = 2\nnew_rows_from = 328",
			[]string{`run.toml:5: model.new_rows_from: found the integer 328, but the model in ` + hub +
				`llama32 has 328 token ids; want one of them`}},
		"rows without tokens": {hub + "llama32", "context = 64\nnew_rows_from = 3",
			[]string{"run.toml:4: model.new_rows_from: found without model.new_tokens; leave it out"}},
		"no directory": {"nowhere", "context = 64",
			[]string{"run.toml:2: model.init: nowhere is neither a run directory nor a Hugging Face " +
				"checkpoint"}},
		"a file": {hub + "llama32/config.json", "context = 64",
			[]string{"run.toml:2: model.init: "}},
		"a run that names itself": {run, "context = 8",
			[]string{"run.toml:2: model.init: " + filepath.Join(run, "run.toml") + ":1: model."}},
		"a run with other pairs": {other, "rope_pairs = \"interleaved\"",
			[]string{`run.toml:3: model.rope_pairs: found the string "interleaved", but`}},
		"a problem without data": {hub + "llama32", "kind = \"toy\"",
			[]string{`run.toml:2: model.init: a key of language models`}},
	} {
		text := started(test.init, test.more)
		if name == "a problem without data" {
			text = strings.Replace(text, "[data]\ntrain = \"a.tok\"\nvalidation = \"b.tok\"\n", "", 1)
			text = strings.Replace(text, "batch = 2\n", "", 1)
		}
		_, err := Parse("run.toml", []byte(text), nil)
		found, ok := errors.AsType[plaintoml.Errors](err)
		if !ok || len(found) != len(test.want) {
			t.Errorf("%s: error\n%v\nwant %d", name, err, len(test.want))
			continue
		}
		for i, want := range test.want {
			if !strings.HasPrefix(found[i].Error(), want) {
				t.Errorf("%s: message\n%s\nwant\n%s", name, found[i], want)
			}
		}
	}
	drawn := started("", "layers = 2\nwidth = 64\nheads = 4\ncontext = 8\nnew_tokens = 2")
	if _, err := Parse("run.toml", []byte(drawn), nil); err == nil ||
		!strings.Contains(err.Error(), "run.toml:7: model.new_tokens: found without model.init") {
		t.Errorf("new tokens of a model that starts from nothing: %v", err)
	}
	// Longer sequences with another rope_theta are allowed.
	parse(t, started(hub+"sharded", "context = 256\nrope_theta = 1e6"))
}

// TestCheckInitial checks that a resolved configuration is compared with the model it starts from.
func TestCheckInitial(t *testing.T) {
	cfg := parse(t, started(hub+"llama32", "context = 64"))
	for name, want := range map[string]string{"llama32": "",
		"llama2": "model.vocab: found the integer 328, but the model in " + hub + "llama2 has 160"} {
		found, err := ReadInitial(hub+name, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.CheckInitial(found); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// TestImported checks that the configuration of a run without training can be read back, and that
// it contains nothing about training.
func TestImported(t *testing.T) {
	initial, err := ReadInitial(hub+"llama32", 64)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Imported(initial, 64, "runs/x")
	if err != nil {
		t.Fatal(err)
	}
	text := string(cfg.Encode())
	again := parse(t, text)
	diff := Diff(cfg, again)
	if len(diff) > 0 || again.Train.Steps != 0 || again.Model.Context != 64 ||
		strings.Contains(text, "[data]") {
		t.Errorf("differences %v in\n%s", diff, text)
	}
	_, err = Parse("run.toml", []byte(text+"[data]\ntrain = \"a\"\n"), nil)
	if err == nil || !strings.Contains(err.Error(), "data: found with train.steps = 0") {
		t.Errorf("with data: error %v", err)
	}
	if _, err := Imported(initial, 1024, "runs/x"); err == nil ||
		!strings.Contains(err.Error(), "512 positions") {
		t.Errorf("a context beyond the positions: error %v", err)
	}
}

// TestWithoutTraining checks that the configuration of a run that only holds a trained model can be
// read back, with its validation set.
func TestWithoutTraining(t *testing.T) {
	for name, text := range map[string]string{
		"minimal": "data = {train = \"a\", validation = \"b\"}\n",
		"mixture": "data = {validation = \"b\"}\n[[data.mixture]]\npath = \"a\"\nweight = 1.0\n",
		"lotion":  "data = {train = \"a\", validation = \"b\"}\nmethod = {name = \"lotion\"}\n",
	} {
		head := "model = {layers = 1, width = 8, heads = 1, context = 8}\ntrain = {steps = 9, batch = " +
			"1}\nschedule = {rate = 1e-3}\noptimizer = {plugin = \"adamw\"}\nquantizer = {plugin = " +
			"\"quest\"}\n"
		cfg := parse(t, head+text)
		held := cfg.WithoutTraining("runs/held")
		encoded := string(held.Encode())
		again := parse(t, encoded)
		if diff := Diff(held, again); len(diff) > 0 {
			t.Errorf("%s: differences %v", name, diff)
		}
		if d := again.Data; !again.Untrained() || again.Train.Out != "runs/held" || d.Validation != "b" ||
			len(d.Files()) > 0 {
			t.Errorf("%s: read back as\n%s", name, encoded)
		}
		if again.Method.Name != "off" || again.Method.CAGE.Form != "off" {
			t.Errorf("%s: the method is %+v", name, again.Method)
		}
		if cfg.Untrained() || cfg.Train.Steps != 9 || len(cfg.Data.Files()) != 1 {
			t.Errorf("%s: the configuration itself has changed", name)
		}
	}
}
