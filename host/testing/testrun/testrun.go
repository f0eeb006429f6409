// Package testrun sets up small training runs for tests: it generates token files, configures a
// model that trains in milliseconds, runs the plugins of this repository, and compares finished
// runs.
//
// It is for tests only, and makes no assertions about training itself.
package testrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// Rare is a token that occurs only in the training file, in about one of four batches of a run with
// [Config].
const Rare = 1

// Dataset writes a training file and a validation file of byte tokens, and returns their paths. The
// content is always the same.
func Dataset(t testing.TB) (trainFile, validation string) {
	t.Helper()
	dir := t.TempDir()
	trainFile, validation = filepath.Join(dir, "train.tokens"), filepath.Join(dir, "val.tokens")
	random := rand.New(rand.NewPCG(7, 11))
	writeTokens(t, trainFile, random, 60, true)
	writeTokens(t, validation, random, 5, false)
	return trainFile, validation
}

func writeTokens(t testing.TB, path string, random *rand.Rand, documents int, rare bool) {
	t.Helper()
	tok := tokenizer.Bytes{}
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: tok.Info()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for range documents {
		ids, err := tok.Encode(text(random, 50))
		if err != nil {
			t.Fatal(err)
		}
		if rare {
			ids[random.IntN(len(ids))] = Rare
		}
		if err := w.WriteDocument(ids, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// text returns random words from a small vocabulary, from which a model can learn within a few
// steps.
func text(random *rand.Rand, words int) string {
	list := strings.Fields("the quick brown fox jumps over a lazy dog while func returns nil and err")
	var b strings.Builder
	for range words {
		b.WriteString(list[random.IntN(len(list))])
		b.WriteByte(' ')
	}
	return b.String()
}

const configText = `
[model]
layers = 1
width = 32
heads = 2
hidden = 48
context = 16

[data]
train = %q
validation = %q

[train]
steps = 20
batch = 4
eval_every = 8
eval_batches = 2
final_eval_batches = 3
log_every = 1
out = %q

[schedule]
rate = 3e-3

[method]
lambda = 2.0
silence = 0.4

[quantizer]
plugin = "quest"
bits = 4

[optimizer]
plugin = "adamw"
`

// TwoLayers is an override for tests in which layers share a graph or a batch of equal tensors.
const TwoLayers = "model.layers=2"

// Config returns the configuration of a run in a new directory: 20 steps of a one-layer model on
// the data of [Dataset], with QuEST in 4 bits, AdamW and the decoupled correction. overrides are as
// in config.Load.
func Config(t testing.TB, overrides ...string) *config.Config {
	t.Helper()
	trainFile, validation := Dataset(t)
	return Parse(t, ConfigText(trainFile, validation, filepath.Join(t.TempDir(), "run")), overrides...)
}

// ConfigText returns the TOML of [Config] for the given data files and run directory.
func ConfigText(trainFile, validation, out string) string {
	return fmt.Sprintf(configText, trainFile, validation, out)
}

// Parse parses a configuration.
func Parse(t testing.TB, text string, overrides ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.toml", []byte(text), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Again returns a copy of a configuration with some overrides.
func Again(t testing.TB, cfg *config.Config, overrides ...string) *config.Config {
	t.Helper()
	return Parse(t, string(cfg.Encode()), overrides...)
}

// Elsewhere is [Again] with a new run directory.
func Elsewhere(t testing.TB, cfg *config.Config, overrides ...string) *config.Config {
	t.Helper()
	return Again(t, cfg,
		append([]string{fmt.Sprintf("train.out=%q", filepath.Join(t.TempDir(), "run"))}, overrides...)...)
}

// Train performs a training run with the plugins of [Finder]. It fails the test on an error.
func Train(t testing.TB, cfg *config.Config, o train.Options) *metrics.Summary {
	t.Helper()
	if o.Finder == nil {
		o.Finder = Finder(t)
	}
	o.EndOfTurn = chat.EndOfTurn
	summary, err := train.Run(context.Background(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

// root returns the root directory of this module.
func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod in the working directory or above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Still holds overrides for a full-precision run whose steps leave every bit of the parameters
// unchanged.
var Still = []string{`quantizer.plugin="none"`, "train.weight_decay=0", "schedule.rate=1e-30",
	"train.steps=1", "train.batch=2"}

// OtherTokens is the override with which a Hugging Face model can be trained on byte tokens.
const OtherTokens = `data.tokenizer_mismatch="allow"`

// FromHub returns the configuration of a run that starts from a copy of a Hugging Face checkpoint,
// and the directory of that copy.
func FromHub(t testing.TB, overrides ...string) (cfg *config.Config, dir string) {
	t.Helper()
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(dir,
		os.DirFS(filepath.Join(top, "host/model/huggingface/testdata/llama32"))); err != nil {
		t.Fatal(err)
	}
	c, err := huggingface.ReadConfig(vfs.At(dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	sizes := []string{fmt.Sprintf("model.init=%q", dir),
		fmt.Sprintf("model.layers=%d", c.Settings.Layers),
		fmt.Sprintf("model.width=%d", c.Settings.Width), fmt.Sprintf("model.heads=%d", c.Settings.Heads),
		fmt.Sprintf("model.hidden=%d", c.Settings.Hidden), OtherTokens}
	return Config(t, slices.Concat(sizes, Still, overrides)...), dir
}

// Loss returns the loss of a model on a file, and the number of targets.
func Loss(t testing.TB, dir string, o trained.Options) (float64, int64) {
	t.Helper()
	o.Finder = Finder(t)
	opened, err := trained.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	loss, targets, err := opened.Evaluate(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return loss, targets
}
