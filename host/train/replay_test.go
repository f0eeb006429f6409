package train_test

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestReplay: the steps between two checkpoints give the second one, bit for bit, with
// refreshes under way, diagnostics, skipped steps and trained quantizers; and the run is
// as it was.
func TestReplay(t *testing.T) {
	testlevel.Long(t, "trains runs of every kind twice")
	save := []string{"train.checkpoint_every=4", "train.keep=9"}
	poisonedRun := poisoned(t, 1, append(save, "train.max_skipped=20", "train.checkpoint_minutes=0")...)[0]
	teacher, init := pretrained(t)
	cases := map[string]*config.Config{
		"teacher":       testrun.Elsewhere(t, teacher, append(save, init, initialTeacher, `quantizer={plugin="quest"}`)...),
		"plain":         testrun.Config(t, save...),
		"soap, late":    testrun.Config(t, append(slices.Clone(lateRefreshes["soap"]), save...)...),
		"lsq, sgd":      testrun.Config(t, append(save, `quantizer={plugin="lsq", bits=4}`, `optimizer={plugin="sgd"}`)...),
		"diagnostics":   testrun.Config(t, append(save, "diagnostics.every=2", "diagnostics.window=4")...),
		"skipped steps": poisonedRun,
		"problem":       problem(t, quadraticText, "train.checkpoint_every=4", "train.keep=9"),
	}
	for name, cfg := range cases {
		t.Run(name, func(t *testing.T) {
			testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
			before := content(t, cfg.Train.Out)
			steps := savedSteps(t, cfg)
			for _, from := range []*int{nil, new(steps[0]), new(0)} {
				got, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{From: from, Finder: testrun.Finder(t)})
				if err != nil {
					t.Fatal(err)
				}
				if name == "skipped steps" && from != nil && *from == 0 {
					continue // the checkpoint was changed
				}
				if len(got.Differences) > 0 || got.Tensors < 1 || got.Numbers < 1 || got.To <= got.From || got.Recorded != got.Now {
					t.Errorf("%+v", got)
				}
				if n := len(steps); from == nil && (got.From != steps[n-2] || got.To != steps[n-1]) {
					t.Errorf("replayed steps %d to %d of the checkpoints %v", got.From, got.To, steps)
				}
			}
			if diff := cmp.Diff(before, content(t, cfg.Train.Out)); diff != "" {
				t.Errorf("the run was changed:\n%s", diff)
			}
		})
	}
}

// TestReplayFindsOneBit: the smallest change of one number of one state is found, and
// where it is.
func TestReplayFindsOneBit(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=10")
	testrun.Train(t, cfg, train.Options{})
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Checkpoint(t, cfg.Train.Out, 20)
	var distance float64
	for i, x := range s.Tensors {
		if x.Name != "state/layers.0.mlp.down/m" {
			continue
		}
		v, err := safetensors.Values[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		old := v[2*x.Shape[1]+5]
		v[2*x.Shape[1]+5] = math.Float32frombits(math.Float32bits(old) ^ 1)
		distance = math.Abs(float64(old) - float64(v[2*x.Shape[1]+5]))
		if s.Tensors[i], err = safetensors.New(x.Name, x.Shape, v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	got, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	want := []train.Difference{{Name: "state/layers.0.mlp.down/m", Count: 1, Of: 32 * 48, First: []int{2, 5}, Largest: metrics.Some(distance)}}
	if diff := cmp.Diff(want, got.Differences); diff != "" || distance == 0 {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

// TestReplayWithAnotherPlugin: a replay is refused when a plugin gives other programs now.
func TestReplayWithAnotherPlugin(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=10")
	testrun.Train(t, cfg, train.Options{})
	spoilHash(t, cfg)
	_, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{Finder: testrun.Finder(t)})
	if err == nil || errors.Is(err, train.ErrInterrupted) || !strings.Contains(err.Error(), "a plugin has changed and now gives another program for weight ") {
		t.Errorf("%v", err)
	}
}

// TestReplayOfAnExtendedRun: steps before the extension are replayed with the present
// configuration, which gives the same steps.
func TestReplayOfAnExtendedRun(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	cfg := testrun.Config(t, "train.steps=6", `schedule={kind="constant", rate=3e-3}`, `method={silence=0.5, ramp="constant"}`,
		"train.checkpoint_every=2", "train.keep=9")
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
	testrun.Train(t, testrun.Again(t, cfg, "train.steps=12", "method.silence=0.25"), train.Options{Resume: true})
	for _, from := range []int{2, 4, 6} {
		got, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{From: &from, Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		if got.From != from || got.To != from+2 || len(got.Differences) > 0 {
			t.Errorf("%+v", got)
		}
	}
}

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

// TestDamagedTensor: an evaluation does not read the optimizer's state, so that damage there
// does not matter to it, and damage to a parameter is an error; a run that goes on from the checkpoint falls back to the one before.
// The tensor is named.
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
	if loss, step, log := evaluated(t, cfg); loss != want || step != 20 || strings.Contains(log, "damaged") {
		t.Errorf("with damage to the optimizer's state: loss %v of step %d, want %v; the log says:\n%s", loss, step, want, log)
	}
	var log bytes.Buffer
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if !strings.Contains(log.String(), "a damaged checkpoint does not count and was put aside") || !strings.Contains(log.String(), state) {
		t.Errorf("the log says:\n%s", log.String())
	}
	testrun.SameRun(t, "whole, and after damage", whole.Train.Out, cfg.Train.Out)
	flipTensor(t, cfg, 20, param)
	_, err := trained.Open(t.Context(), cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), param) || !strings.Contains(err.Error(), "the newest intact checkpoint is of step 10: name it with --step 10") {
		t.Errorf("with damage to a parameter: %v", err)
	}
}

// evaluated are the loss of a run's newest checkpoint, its step, and what was logged.
func evaluated(t *testing.T, cfg *config.Config) (loss float64, step int, log string) {
	t.Helper()
	var out bytes.Buffer
	opened := opened(t, cfg.Train.Out, trained.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &out})})
	loss, _, err := opened.Evaluate(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return loss, opened.Step(), out.String()
}
