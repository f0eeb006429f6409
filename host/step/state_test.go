package step_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/step"
	"github.com/cage-qat/cage/sdk"
)

// TestUploadChecks: a checkpoint that does not fit is refused.
func TestUploadChecks(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=32")
	k := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, k)
	tensors, err := k.Download(s)
	if err != nil {
		t.Fatal(err)
	}
	load := func(spoil func(name string) (step.Tensor, error)) func(string) (step.Tensor, error) {
		return func(name string) (step.Tensor, error) {
			if strings.HasPrefix(name, "state/layers.1.mlp.down/") {
				return spoil(name)
			}
			for _, x := range tensors {
				if x.Name == name {
					return x, nil
				}
			}
			return step.Tensor{}, fmt.Errorf("no %s", name)
		}
	}
	missing := errors.New("missing")
	if _, err := k.Upload(load(func(string) (step.Tensor, error) { return step.Tensor{}, missing })); !errors.Is(err, missing) {
		t.Errorf("a missing tensor: %v", err)
	}
	_, err = k.Upload(load(func(name string) (step.Tensor, error) {
		return step.Tensor{Name: name, Dims: []int{48, 32}, Data: make([]float32, 48*32)}, nil
	}))
	if err == nil || !strings.Contains(err.Error(), "[48 32], the run needs [32 48]") {
		t.Errorf("a tensor of another shape: %v", err)
	}
}

// TestMemory: many steps, with everything a step can be asked for, leave the heap as
// it was. One set of this model's parameters and states has 300 kB; the bound of 2 MB
// is far below one buffer of 300 kept in each of 250 steps.
func TestMemory(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=32", "train.accumulate=2")
	k := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, k)
	b := batches(cfg, 1, 2)
	steps := func(from, to int) {
		for i := from; i < to; i++ {
			set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i % 2), Statistics: i%3 == 0}
			set.Pareto, set.FullPareto = i%10 == 0, i%10 == 0
			old := s.Params[0]
			run(t, k, s, b, set)
			if !old.Gone() {
				t.Fatal("an update keeps the old parameters")
			}
		}
	}
	steps(0, 50)
	before := heap()
	steps(50, 300)
	if after := heap(); after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes in 250 steps", before, after)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestEvaluator: its losses are those of the training step, and their mean its loss.
func TestEvaluator(t *testing.T) {
	for _, q := range []sdk.Quantizer{nil, grid{}} {
		cfg := sgdConfig(t)
		k := testrun.Compile(t, planOf(t, cfg, q, descent{}))
		s := newState(t, k)
		b := batches(cfg, 4, 1)
		e, err := k.Evaluator(s)
		if err != nil {
			t.Fatal(err)
		}
		losses, err := e.Losses(b[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(losses) != cfg.Train.Batch*cfg.Model.Context {
			t.Errorf("%d losses", len(losses))
		}
		total := 0.0
		for _, l := range losses {
			total += float64(l)
		}
		res := run(t, k, s, b, step.Settings{Step: 1, Rate: 0.1, NextRate: 0.1})
		near(t, "the mean of the losses", total/float64(len(losses)), res.Loss, 1e-6)
		e.Close()
		if _, err := e.Losses(b[0]); q != nil && !errors.Is(err, engine.ErrBufferGone) {
			t.Errorf("after Close: %v", err)
		}
		e.Close()
	}
}
