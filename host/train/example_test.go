package train_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// This example trains a small model from a text and prints its summary.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "cage-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	tokens := filepath.Join(dir, "all.tokens")
	if err := writeDigits(tokens); err != nil {
		log.Fatal(err)
	}
	cfg, err := config.Parse("example.toml", fmt.Appendf(nil, `
model     = { layers = 1, width = 32, heads = 2, hidden = 32, context = 16 }
data      = { train = %q, validation = %q }
train     = { steps = 60, batch = 4, out = %q }
schedule  = { rate = 0.02 }
quantizer = { plugin = "quest" }
`, tokens, tokens, filepath.Join(dir, "run")), nil)
	if err != nil {
		log.Fatal(err)
	}
	finder, err := plugin.NewFinder()
	if err != nil {
		log.Fatal(err)
	}
	finder.Dirs = append(finder.Dirs, filepath.Join("..", "..", "plugins"))
	summary, err := train.Run(context.Background(), cfg, train.Options{Finder: finder})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d steps, %d tokens\n", summary.Steps, summary.TotalSteps, summary.Tokens)
	fmt.Println("knows what follows:", *summary.ValLoss < 0.5)
	// Output:
	// 60 of 60 steps, 3840 tokens
	// knows what follows: true
}

// writeDigits writes 200 documents 0123456789.
func writeDigits(path string) error {
	tok := tokenizer.Bytes{}
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: tok.Info()})
	if err != nil {
		return err
	}
	defer w.Abort()
	for range 200 {
		ids, err := tok.Encode("0123456789")
		if err != nil {
			return err
		}
		if err := w.WriteDocument(ids, nil); err != nil {
			return err
		}
	}
	_, err = w.Commit()
	return err
}

// TestExamples trains every TOML file in examples/ for two steps, with the real plugins and the
// tests' data, except those that TestPublishedRecipes trains.
func TestExamples(t *testing.T) {
	testlevel.Long(t, "reads every example")
	files, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	trainFile, validation := testrun.Dataset(t)
	for _, file := range files {
		name := filepath.Base(file)
		if slices.Contains(publishedRecipes, strings.TrimSuffix(name, ".toml")) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Load(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			const steps = 2
			overrides := []string{
				fmt.Sprintf("train.steps=%d", steps),
				fmt.Sprintf("train.out=%q", filepath.Join(t.TempDir(), "run")), "train.eval_every=0",
				"schedule.warmup=0.0",
			}
			if cfg.Model.Language() {
				overrides = append(overrides, fmt.Sprintf("data.train=%q", trainFile),
					fmt.Sprintf("data.validation=%q", validation),
					// 128 tokens, the size of a rotation of mseden
					"train.batch=4", "model.context=32", "train.final_eval_batches=1")
			}
			if cfg, err = config.Load(file, overrides); err != nil {
				t.Fatal(err)
			}
			s := testrun.Train(t, cfg, train.Options{})
			if s.Steps != steps || s.ValLoss == nil || s.Skipped != 0 {
				t.Errorf("the summary is %+v", s)
			}
		})
	}
}
