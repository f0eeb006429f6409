package trained_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestAveraged: a run whose optimizer is evaluated at an average is opened and exported with that
// average.
func TestAveraged(t *testing.T) {
	effort.Long(t, "builds a plugin, and trains with it")
	builder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := builder.Find(t.Context(), filepath.Join("..", "..", "..", "examples", "plugins", "schedule-free"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("optimizer={plugin=%q}", exe.Path), "train.final_eval_batches=0", "train.eval_batches=0", `quantizer={plugin="lsq"}`)
	summary := testrun.Train(t, cfg, train.Options{})
	opened := open(t, cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	loss, _, err := opened.Evaluate(t.Context(), 0)
	if err != nil || loss != float64(*summary.ValLoss) {
		t.Errorf("it evaluates to %v, the run to %v (%v)", loss, float64(*summary.ValLoss), err)
	}
	m, err := opened.Export()
	if err != nil {
		t.Fatal(err)
	}
	name := m.Params[0].Name
	exported, err := m.Latent(name)
	if err != nil {
		t.Fatal(err)
	}
	err = checkpoint.Use(rundir.At(cfg.Train.Out).Checkpoints(), 0, func(f *checkpoint.File) error {
		for prefix, same := range map[string]bool{"evaluated/": true, "param/": false} {
			x, err := f.Tensor(prefix + name)
			if err != nil {
				return err
			}
			values, err := safetensors.Values[float32](x)
			if err != nil {
				return err
			}
			if slices.Equal(values, exported) != same {
				t.Errorf("the exported %s is %s%[1]s: %v, want %v", name, prefix, !same, same)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
