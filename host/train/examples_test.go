package train_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/effort"
)

// TestExamples: every TOML file in examples/ trains, with the real plugins, on the
// tests' data and for two steps.
func TestExamples(t *testing.T) {
	effort.Long(t, "reads every example")
	files, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	trainFile, validation := testrun.Dataset(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := config.Load(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			overrides := []string{
				fmt.Sprintf("train.out=%q", filepath.Join(t.TempDir(), "run")), "train.steps=2", "train.eval_every=0", "schedule.warmup=0.0",
			}
			if cfg.Model.Language() {
				overrides = append(overrides, fmt.Sprintf("data.train=%q", trainFile), fmt.Sprintf("data.validation=%q", validation),
					"train.batch=1", "model.context=16", "train.final_eval_batches=1")
			}
			if cfg, err = config.Load(file, overrides); err != nil {
				t.Fatal(err)
			}
			s := testrun.Train(t, cfg, train.Options{})
			if s.Steps != 2 || s.ValLoss == nil || s.Skipped != 0 {
				t.Errorf("the summary is %+v", s)
			}
		})
	}
}
