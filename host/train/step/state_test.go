package step_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

// TestUploadChecks checks that a checkpoint that does not fit is refused.
func TestUploadChecks(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	whole := loaded(testrun.Tensors(t, c, s))
	load := func(spoil func(name string) (step.Tensor, error)) func(string) (step.Tensor, error) {
		return func(name string) (step.Tensor, error) {
			if strings.HasPrefix(name, "state/layers.1.mlp.down/") {
				return spoil(name)
			}
			return whole(name)
		}
	}
	missing := errors.New("missing")
	if _, err := c.Upload(
		load(func(string) (step.Tensor, error) { return step.Tensor{}, missing })); !errors.Is(err,
		missing) {
		t.Errorf("a missing tensor: %v", err)
	}
	_, err := c.Upload(load(func(name string) (step.Tensor, error) {
		return step.Tensor{Name: name, Dims: []int{48, 32}, Data: make([]float32, 48*32)}, nil
	}))
	if err == nil || !strings.Contains(err.Error(), "[48 32], the run needs [32 48]") {
		t.Errorf("a tensor of another shape: %v", err)
	}
}

// TestMemory checks that many steps with all measures leave the heap as it was. The parameters and
// states of this model take 300 kB; the bound of 2 MB is far below 250 sets of 300 kB.
func TestMemory(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.accumulate=2")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	b := batches(cfg, 1, 2)
	steps := func(from, to int) {
		for i := from; i < to; i++ {
			set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: float64(i % 2),
				Statistics: i%3 == 0}
			set.ParetoSTE, set.Pareto = i%10 == 0, i%10 == 0
			old := s.Param(c.Plan().Rules[0].Name)
			run(t, c, s, b, set)
			if !old.Gone() {
				t.Fatal("an update keeps the old parameters")
			}
		}
	}
	steps(0, 50)
	before := inUse().heap
	steps(50, 300)
	if after := inUse().heap; after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes in 250 steps", before, after)
	}
}

// TestEvaluator checks that the mean of the evaluation's losses is the loss of the training step.
func TestEvaluator(t *testing.T) {
	for _, q := range []sdk.Quantizer{nil, grid{}} {
		cfg := sgdConfig(t)
		c := testrun.Compile(t, planOf(t, cfg, q, descent{}))
		s := newState(t, c)
		b := batches(cfg, 4, 1)
		e, err := c.Evaluator(s)
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
		res := run(t, c, s, b, step.Settings{Step: 1, Rate: 0.1, NextRate: 0.1})
		near(t, "the mean of the losses", total/float64(len(losses)), res.Loss, 1e-6)
		e.Close()
		if _, err := e.Losses(b[0]); q != nil && !errors.Is(err, engine.ErrBufferGone) {
			t.Errorf("after Close: %v", err)
		}
		e.Close()
	}
}

// TestHold checks that a step replaces nothing while the state is held.
func TestHold(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32")
		plan := testrun.Plan(t, cfg)
		plan.Dispatch = dispatch
		c := testrun.Compile(t, plan)
		s := newState(t, c)
		stored, before := c.Stored(s), testrun.Download(t, c, s)
		done := make(chan struct{})
		s.Hold(done)
		ended := make(chan error)
		go func() {
			_, err := c.Step(s, batches(cfg, 1, cfg.Train.Accumulate),
				step.Settings{Step: 1, Rate: 1e-2, NextRate: 1e-2})
			ended <- err
		}()
		select {
		case err := <-ended:
			t.Fatalf("%s: the step did not wait: %v", dispatch, err)
		case <-time.After(300 * time.Millisecond):
		}
		held := map[string][]float32{}
		for _, x := range stored {
			data, err := x.Read()
			if err != nil {
				t.Fatal(err)
			}
			held[x.Name] = slices.Clone(data)
		}
		close(done)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		sameBits(t, "before the step, and while it waits", before, held)
		if changed := testrun.Download(t, c, s)["param/head"]; slices.Equal(changed,
			before["param/head"]) {
			t.Error("the step changed nothing")
		}
	}
}

// TestManySteps checks that thousands of small steps, with the correction, clipping and statistics,
// neither hang nor grow. Older releases of the engine had rare deadlocks of worker pools, and a
// buffer that is not freed shows only after a while.
func TestManySteps(t *testing.T) {
	testlevel.Long(t, "10,000 steps")
	cfg := testrun.Config(t, "model.vocab=32", "model.width=16", "model.hidden=32", "model.heads=1",
		"model.context=8", "train.batch=2")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	b := batches(cfg, 1, 1)
	steps, settled := testlevel.Choose(2_500, 10_000), 500
	var done atomic.Int64
	finished := make(chan error, 1)
	var before, after memory
	go func() {
		for i := 1; i <= steps; i++ {
			_, err := c.Step(s, b, step.Settings{Step: i, Rate: 1e-3, NextRate: 1e-3, Lambda: 2,
				Statistics: i%10 == 0})
			if err != nil {
				finished <- err
				return
			}
			done.Store(int64(i))
			if i == settled {
				before = inUse()
			}
		}
		after = inUse()
		finished <- nil
	}()
	// A step takes a millisecond or so, on a busy machine a hundred.
	const patience = time.Minute
	for last := int64(-1); ; {
		select {
		case err := <-finished:
			if err != nil {
				t.Fatal(err)
			}
			if grown := int64(after.heap) - int64(before.heap); grown > 1<<20 {
				t.Errorf("memory in use grew by %d bytes in %d steps", grown, steps-settled)
			}
			if after.goroutines > before.goroutines+2 {
				t.Errorf("%d goroutines after %d steps, %d after %d", after.goroutines, steps,
					before.goroutines, settled)
			}
			return
		case <-time.After(patience):
			if now := done.Load(); now == last {
				t.Fatalf("no step was finished within %v of step %d", patience, now)
			} else {
				last = now
			}
		}
	}
}

type memory struct {
	heap       uint64
	goroutines int
}

// inUse returns the memory and the goroutines in use after a garbage collection.
func inUse() memory {
	runtime.GC()
	runtime.GC() // frees what finalizers have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc, runtime.NumGoroutine()}
}
