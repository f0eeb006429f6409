package train_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testhub"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

// initialOf is what a run says of the weights that it started from.
func initialOf(t *testing.T, run string) (initial struct {
	Path, Run string
	Step      int
	Files     []huggingface.Part
}) {
	t.Helper()
	text, err := rundir.At(run).Provenance().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &struct{ Initial any }{&initial}); err != nil {
		t.Fatal(err)
	}
	return initial
}

// TestFromHub: a run starts with the weights of the checkpoint, says so, and does not need it any more.
func TestFromHub(t *testing.T) {
	for _, pairs := range []string{"interleaved", "half"} {
		cfg, dir := testrun.FromHub(t, fmt.Sprintf("model.rope_pairs=%q", pairs), "train.steps=2")
		if _, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t), StopAfter: 1}); err == nil {
			t.Fatal("the run did not stop")
		}
		c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
		for _, p := range c.Params() {
			want, err := c.Values(p.Name)
			if err != nil || !slices.Equal(got["param/"+p.Name], want) {
				t.Errorf("%s: parameter %s is not that of the checkpoint, error %v", pairs, p.Name, err)
			}
		}
		parts, err := c.Parts()
		if initial := initialOf(t, cfg.Train.Out); err != nil || initial.Path != dir || !slices.Equal(initial.Files, parts) {
			t.Errorf("%s: the provenance says %+v", pairs, initial)
		}
		// All sizes stand in run.toml: with the checkpoint gone, the run goes on and can be evaluated.
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		resolved, err := config.Load(rundir.At(cfg.Train.Out).Config().Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Train(t, resolved, train.Options{Resume: true})
		if initial := initialOf(t, cfg.Train.Out); !slices.Equal(initial.Files, parts) {
			t.Errorf("%s: after it went on, the provenance says %+v", pairs, initial)
		}
		evaluate(t, cfg.Train.Out)
	}
}

// TestNewTokens: new tokens have rows of their own in the embedding and in the head, which start as the mean of the others or
// as the row of one; all other weights are those of the checkpoint. A run that was saved goes on without the checkpoint.
func TestNewTokens(t *testing.T) {
	for hub, n := range map[string]int{"llama32": 2, "olmo2": 256} { // with a tied head, and with one of its own
		for _, from := range []int{-1, 3} {
			dir := filepath.Join("../model/huggingface/testdata", hub)
			overrides := append([]string{fmt.Sprintf("model.init=%q", dir), fmt.Sprintf("model.new_tokens=%d", n)}, testrun.Still...)
			if from >= 0 {
				overrides = append(overrides, fmt.Sprintf("model.new_rows_from=%d", from))
			}
			text := testrun.ConfigText("train.tokens", "val.tokens", filepath.Join(t.TempDir(), "run"))
			trainFile, validation := testrun.Dataset(t)
			text = strings.NewReplacer("train.tokens", trainFile, "val.tokens", validation).Replace(text)
			for _, key := range []string{"layers", "width", "heads", "hidden"} {
				text = regexp.MustCompile(`(?m)\b`+key+` = \d+,?`).ReplaceAllString(text, "")
			}
			cfg := testrun.Parse(t, text, overrides...)
			testrun.Train(t, cfg, train.Options{})
			c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
			for _, p := range c.Params() {
				want, err := c.Values(p.Name)
				if err != nil {
					t.Fatal(err)
				}
				want = slices.Clone(want)
				if p.Name == "embedding" || p.Name == "head" {
					rows, width := p.Dims[0], p.Dims[1]
					row := make([]float32, width)
					for i := range row {
						sum := 0.0
						for r := range rows {
							sum += float64(want[r*width+i])
						}
						row[i] = float32(sum / float64(rows))
					}
					if from >= 0 {
						row = slices.Clone(want[from*width : (from+1)*width])
					}
					want = append(want, slices.Repeat(row, n)...)
				}
				if !slices.Equal(got["param/"+p.Name], want) {
					t.Errorf("%s, from %d: parameter %s is not that of the checkpoint with new rows", hub, from, p.Name)
				}
			}
			evaluate(t, cfg.Train.Out)
		}
	}
}

// TestWarmStart: a run that starts from another one is that model, to the last bit of its evaluation.
func TestWarmStart(t *testing.T) {
	first := testrun.Config(t, `quantizer.plugin="none"`)
	testrun.Train(t, first, train.Options{})
	init := fmt.Sprintf("model.init=%q", first.Train.Out)
	warm := testrun.Elsewhere(t, first, append([]string{init}, testrun.Still...)...)
	testrun.Train(t, warm, train.Options{})
	if a, b := evaluate(t, first.Train.Out), evaluate(t, warm.Train.Out); math.Float64bits(a) != math.Float64bits(b) {
		t.Errorf("the loss is %v, of the run that it starts from %v", b, a)
	}
	initial := initialOf(t, warm.Train.Out)
	if initial.Path != first.Train.Out || initial.Step != first.Train.Steps || initial.Run == "" || len(initial.Files) != 1 || len(initial.Files[0].SHA256) != 64 {
		t.Errorf("the provenance says %+v", initial)
	}
	// The usual way to quantization-aware training.
	summary := testrun.Train(t, testrun.Elsewhere(t, first, init, `quantizer.plugin="quest"`, "quantizer.bits=4"), train.Options{})
	if !summary.Completed {
		t.Errorf("summary %+v", summary)
	}
}

// TestInitChanged: a run that begins again, or is replayed from its first step, does so with the weights that it had, or not
// at all.
func TestInitChanged(t *testing.T) {
	first, init := pretrained(t, "train.steps=4", "train.checkpoint_every=2", "train.keep=5")
	newest := rundir.At(first.Train.Out).Checkpoints().Join(checkpoint.FileName(4)).Name
	hidden := filepath.Join(t.TempDir(), "hidden")
	if err := os.Rename(newest, hidden); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Elsewhere(t, first, append([]string{init}, testrun.Still...)...)
	testrun.Train(t, cfg, train.Options{})
	if err := os.Rename(hidden, newest); err != nil { // the run that it started from went on
		t.Fatal(err)
	}
	start := 0
	_, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{From: &start, Finder: testrun.Finder(t)})
	refused := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*plaintoml.Error](err)
		if !ok || e.Key != "model.init" || !strings.Contains(e.Msg, "step 4) than those that the run began with ("+first.Train.Out+", step 2)") {
			t.Errorf("%s: error %v, want one that names both weights", what, err)
		}
	}
	refused("replayed", err)
	dir := rundir.At(cfg.Train.Out)
	if err := errors.Join(os.RemoveAll(dir.Checkpoints().Name), dir.Summary().Remove()); err != nil {
		t.Fatal(err)
	}
	_, err = train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t)})
	refused("begun again", err)
	if err := os.Remove(newest); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	if initial := initialOf(t, cfg.Train.Out); initial.Step != 2 {
		t.Errorf("with its weights at hand, the provenance says %+v", initial)
	}
}

// TestInitRefused: weights that do not fit begin no run.
func TestInitRefused(t *testing.T) {
	damaged, dir := testrun.FromHub(t)
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wild := func(name string) ([]float32, error) {
		values, err := c.Values(name)
		if name == "norm" || name == "layers.1.mlp.down" {
			values[3] = float32(math.NaN())
		}
		return values, err
	}
	copied := filepath.Join(t.TempDir(), "wild")
	testhub.Write(t, copied, c.Config, safetensors.BF16, 0, wild)
	gone, place := testrun.FromHub(t)
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	unsaved := testrun.Config(t, "model.vocab=256")
	if err := os.MkdirAll(unsaved.Train.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := testrun.Again(t, unsaved).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rundir.At(unsaved.Train.Out).Config().Name, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cfg *config.Config
		say []string
	}{
		"values that are not finite": {testrun.Again(t, damaged, fmt.Sprintf("model.init=%q", copied)),
			[]string{"model.init: " + copied, "tensor model.layers.1.mlp.down_proj.weight: 1 of 6144 values are NaN or infinite", "tensor model.norm.weight: 1 of 64 values"}},
		"no directory":             {gone, []string{"model.init: " + place + " is neither a run directory nor a Hugging Face checkpoint"}},
		"another model":            {testrun.Again(t, damaged, `model.init="../model/huggingface/testdata/olmo2"`), []string{"model.kind: found the string \"llama\", but", "model.vocab: found the integer 328, but"}},
		"a run without provenance": {testrun.Elsewhere(t, unsaved, fmt.Sprintf("model.init=%q", unsaved.Train.Out)), []string{"model.init: what the run was made of cannot be read"}},
	} {
		_, err := train.Run(t.Context(), test.cfg, train.Options{Finder: testrun.Finder(t)})
		for _, say := range test.say {
			if err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: error\n%v\ndoes not say %s", name, err, say)
			}
		}
		if there, err := rundir.At(test.cfg.Train.Out).Config().Exists(); there || err != nil {
			t.Errorf("%s: a run was begun, error %v", name, err)
		}
	}
}
