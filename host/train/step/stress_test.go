package step_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
)

// TestManySteps: thousands of small steps, with the correction, clipping and
// statistics, neither hang nor grow. Worker pools of the engine have deadlocked
// rarely in older releases, and a buffer that is not freed shows after a while only.
func TestManySteps(t *testing.T) {
	effort.Long(t, "10,000 steps")
	cfg := testrun.Config(t, "model.vocab=32", "model.width=16", "model.hidden=32", "model.heads=1", "model.context=8", "train.batch=2")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	b := batches(cfg, 1, 1)
	steps, settled := effort.Choose(2_500, 10_000), 500
	var done atomic.Int64
	finished := make(chan error, 1)
	var before, after memory
	go func() {
		for i := 1; i <= steps; i++ {
			_, err := c.Step(s, b, step.Settings{Step: i, Rate: 1e-3, NextRate: 1e-3, Lambda: 2, Statistics: i%10 == 0})
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
				t.Errorf("%d goroutines after %d steps, %d after %d", after.goroutines, steps, before.goroutines, settled)
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

// inUse is what is in use once garbage is collected.
func inUse() memory {
	runtime.GC()
	runtime.GC() // what finalizers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc, runtime.NumGoroutine()}
}
