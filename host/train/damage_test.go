package train_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// flipTensor changes one bit of a tensor in the checkpoint of a step.
func flipTensor(t *testing.T, cfg *config.Config, step int, tensor string) {
	t.Helper()
	path := filepath.Join(rundir.At(cfg.Train.Out).Checkpoints().Name, checkpoint.FileName(step))
	f, err := checkpoint.Open(vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	infos := f.Infos()
	data := f.Size() - infos[len(infos)-1].End
	f.Close()
	content := read(t, path)
	for _, info := range infos {
		if info.Name == tensor {
			content[data+info.Begin] ^= 1
		}
	}
	write(t, path, content)
}

// TestDamagedTensor checks damage to one tensor of a checkpoint. Damage to the optimizer's state
// does not affect an evaluation, but a resumed run falls back to the previous checkpoint. Damage to
// a parameter is an error of the evaluation. Both messages name the tensor.
func TestDamagedTensor(t *testing.T) {
	whole := testrun.Config(t, "train.checkpoint_every=10")
	testrun.Train(t, whole, train.Options{})
	cfg := testrun.Elsewhere(t, whole)
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
	want, step, _ := evaluated(t, cfg)
	if step != 20 {
		t.Fatalf("evaluated at step %d", step)
	}
	const state, param = "state/layers.0.mlp.down/m", "param/layers.0.mlp.down"
	flipTensor(t, cfg, 20, state)
	if loss, step, log := evaluated(t, cfg); loss != want || step != 20 ||
		strings.Contains(log, "damaged") {
		t.Errorf("with damage to the optimizer's state: loss %v of step %d, want %v; the log says:\n%s",
			loss, step, want, log)
	}
	var log bytes.Buffer
	testrun.Train(t, testrun.Again(t, cfg),
		train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if !strings.Contains(log.String(), "a damaged checkpoint was skipped and renamed") ||
		!strings.Contains(log.String(), state) {
		t.Errorf("the log says:\n%s", log.String())
	}
	testrun.SameRun(t, "whole, and after damage", whole.Train.Out, cfg.Train.Out)
	flipTensor(t, cfg, 20, param)
	_, err := trained.Open(t.Context(), cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), param) ||
		!strings.Contains(err.Error(),
			"the newest intact checkpoint is of step 10: name it with --step 10") {
		t.Errorf("with damage to a parameter: %v", err)
	}
}

// evaluated returns the loss of a run's newest checkpoint, its step, and the log.
func evaluated(t *testing.T, cfg *config.Config) (loss float64, step int, log string) {
	t.Helper()
	var out bytes.Buffer
	opened := opened(t, cfg.Train.Out,
		trained.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &out})})
	loss, _, err := opened.Evaluate(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return loss, opened.Step(), out.String()
}
