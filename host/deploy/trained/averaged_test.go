package trained_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
)

// TestAveraged checks that a run whose optimizer is evaluated at an average is opened and exported
// with that average, and cannot have another.
func TestAveraged(t *testing.T) {
	testlevel.Long(t, "builds a plugin, and trains with it")
	builder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := builder.Find(t.Context(), filepath.Join("..", "..", "..", "examples", "plugins",
		"schedule-free"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("optimizer={plugin=%q}", exe.Path),
		"train.final_eval_batches=0", "train.eval_batches=0", `quantizer={plugin="lsq"}`)
	twice := testrun.Elsewhere(t, cfg, `train.average="ema"`)
	_, err = train.Run(t.Context(), twice, train.Options{Finder: testrun.Finder(t)})
	placed, ok := errors.AsType[*plaintoml.Error](err)
	if !ok || placed.Key != "train.average" || placed.Hint == "" {
		t.Errorf("with another average: %v", err)
	}
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

// TestAverageOfSteps checks that a run with train.average is evaluated, exported and used as a
// start with the mean of its weights after each step, and that interruptions do not change its
// bits.
func TestAverageOfSteps(t *testing.T) {
	testlevel.Long(t, "trains four runs with a checkpoint of each step")
	const first, last = 11, 20
	cfg := testrun.Config(t, `train.average="uniform"`, "train.average_from=11",
		"train.checkpoint_every=1", "train.keep=20", "train.final_eval_batches=0",
		"train.eval_batches=0", `quantizer={plugin="lsq"}`,
		`optimizer.groups=[{match="embedding", rate=0.0}]`)
	summary := testrun.Train(t, cfg, train.Options{})
	parts := testrun.Elsewhere(t, cfg)
	for _, stop := range []int{5, 14} {
		_, err := train.Run(t.Context(), testrun.Again(t, parts),
			train.Options{Resume: true, StopAfter: stop, Finder: testrun.Finder(t)})
		if !errors.Is(err, train.ErrInterrupted) {
			t.Fatal(err)
		}
	}
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "in parts, and at once", parts.Train.Out, cfg.Train.Out)

	mean := map[string][]float64{}
	for step := first; step <= last; step++ {
		for name, values := range testrun.Values(t, testrun.Checkpoint(t, cfg.Train.Out, step)) {
			if name, ok := strings.CutPrefix(name, "param/"); ok {
				if mean[name] == nil {
					mean[name] = make([]float64, len(values))
				}
				for i, v := range values {
					mean[name][i] += float64(v) / (last + 1 - first)
				}
			}
		}
	}
	opened := open(t, cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	loss, _, err := opened.Evaluate(t.Context(), 0)
	if err != nil || loss != float64(*summary.ValLoss) || opened.Average() != "uniform" {
		t.Errorf("it evaluates to %v, the run to %v (%v)", loss, float64(*summary.ValLoss), err)
	}
	m, err := opened.Export()
	if err != nil || len(m.Notes) != 1 {
		t.Fatalf("notes %q, %v", m.Notes, err)
	}
	newest := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
	for _, p := range m.Params {
		exported, err := m.Latent(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range exported {
			// Each step rounds a difference, a product and a sum, none larger than the averaged values.
			want := mean[p.Name][i]
			if d := math.Abs(float64(v) - want); d > (last-first)*0x1p-22*max(math.Abs(want), 0.02) {
				t.Fatalf("%s is %v, want %v", p.Name, v, want)
			}
		}
		first := testrun.Values(t, testrun.Checkpoint(t, cfg.Train.Out, 1))
		frozen := p.Name == "embedding"
		if slices.Equal(first["param/"+p.Name], newest["param/"+p.Name]) != frozen {
			t.Errorf("%s stays as it is: %t, want %t", p.Name, !frozen, frozen)
		}
		if slices.Equal(exported, newest["param/"+p.Name]) != frozen {
			t.Errorf("%s: the average is what the last step left: %t, want %t", p.Name, !frozen, frozen)
		}
		_, err = provenance.LoadRun(rundir.At(cfg.Train.Out), func(load step.LoadFunc) error {
			x, err := load(program.KindParam.Of(p.Name))
			if err == nil && !slices.Equal(x.Data, exported) {
				t.Errorf("%s: a run that starts from this one has other weights", p.Name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
