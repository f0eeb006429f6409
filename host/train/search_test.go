package train_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// TestSearchAfterSkippedSteps checks that searches follow the updates, also after skipped steps,
// which are none, and that skipped steps do not count in the strength of the correction.
func TestSearchAfterSkippedSteps(t *testing.T) {
	exe := ownExecutable(t, "kmeans")
	quantizer := fmt.Sprintf(
		`quantizer={weights={plugin=%q, bits=3, every=2}, activations={plugin="none"}}`, exe.Path)
	cfg := poisoned(t, 1, quantizer, "train.checkpoint_every=1", "train.keep=100", "train.log_every=1",
		"train.max_skipped=30", "train.steps=30", "method={strength=0.5, silence=0.1}")[0]
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	name := program.KindQuantizerState.PartOf("layers.0.mlp.down", "codebook")
	codebook := func(step int) []float32 {
		return testrun.Values(t, testrun.Checkpoint(t, cfg.Train.Out, step))[name]
	}
	before, skipped, last := codebook(2), 0, 0.0
	for _, r := range records(t, cfg.Train.Out) {
		if r.Strength != nil {
			if now := float64(*r.Strength); r.Skipped > skipped && now != last {
				t.Errorf("step %d was skipped, and changed the strength from %v to %v", r.Step, last, now)
			} else {
				last = now
			}
		}
		if r.Step <= 2 || r.ValLoss != nil {
			skipped = r.Skipped
			continue
		}
		after := codebook(r.Step)
		due := r.Skipped == skipped && (r.Step-r.Skipped)%2 == 0
		if changed := !slices.Equal(before, after); changed != due {
			t.Errorf("step %d, of which %d skipped: the codebook changed: %t", r.Step, r.Skipped, changed)
		}
		before, skipped = after, r.Skipped
	}
	if skipped == 0 || last >= 0.5 || last <= 0 {
		t.Errorf("%d steps were skipped, and the strength is %v", skipped, last)
	}
}

// onLock is a file system that calls a function before a file is locked.
type onLock struct {
	vfs.FS
	call func()
}

func (f *onLock) Lock(name string) (vfs.Lock, error) {
	f.call()
	return f.FS.Lock(name)
}

// TestInterruptedBeforeFirstSearch checks that a run stops if it is interrupted before the search
// that gives the quantizer its first state. The run directory is locked before that search.
func TestInterruptedBeforeFirstSearch(t *testing.T) {
	exe := ownExecutable(t, "kmeans")
	cfg := testrun.Config(t, fmt.Sprintf(
		`quantizer={weights={plugin=%q, bits=3}, activations={plugin="none"}}`, exe.Path))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := train.Run(ctx, cfg,
		train.Options{Files: &onLock{vfs.OS, stop}, Finder: testrun.Finder(t)})
	if !errors.Is(err, train.ErrInterrupted) || !strings.Contains(err.Error(), "before it began") {
		t.Errorf("got %v", err)
	}
}

// TestSearch checks that a run with a quantizer that searches trains, and gives the same bits if it
// is stopped and resumed, or if the plugin's process is killed. If the plugin is lost, the run ends
// with the state after the step, and continues from there with the search.
func TestSearch(t *testing.T) {
	exe := ownExecutable(t, "kmeans")
	quantizer := fmt.Sprintf(
		`quantizer={weights={plugin=%q, bits=3, every=2}, activations={plugin="none"}}`, exe.Path)
	whole := testrun.Config(t, quantizer, "method.silence=0.5", "train.steps=60",
		"train.checkpoint_every=1000")
	testrun.Train(t, whole, train.Options{})
	list := losses(t, whole.Train.Out)
	if first, last := list[0], list[len(list)-1]; !(last < first) {
		t.Errorf("the loss goes from %v to %v", first, last)
	}
	levels := testrun.Values(t, testrun.Newest(t, whole.Train.Out))[program.KindQuantizerState.PartOf(
		"layers.0.mlp.down", "codebook")]
	if len(levels) == 0 || !slices.IsSorted(levels[:8]) || levels[0] == levels[7] {
		t.Errorf("a codebook is %v", levels[:min(8, len(levels))])
	}
	if left := processesOf(exe.Path); len(left) > 0 {
		t.Errorf("the processes %v are still running", left)
	}

	parts := testrun.Elsewhere(t, whole)
	runParts(t, parts, 3, 12)
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "whole, and in parts", whole.Train.Out, parts.Train.Out)

	killed, log := testrun.Elsewhere(t, whole), &lines{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var killer sync.WaitGroup
	killer.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if !begun(killed) {
				continue
			}
			for _, pid := range processesOf(exe.Path) {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					return
				}
			}
		}
	})
	testrun.Train(t, killed, train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: log})})
	stop()
	killer.Wait()
	if log.count("will be repeated") == 0 {
		t.Error("no search was tried again: the process was not killed while it trained")
	}
	testrun.SameRun(t, "with a process that was killed, and without", whole.Train.Out,
		killed.Train.Out)

	failed := testrun.Elsewhere(t, whole)
	err := trainUntilGone(t, failed, exe)
	if err == nil || !strings.Contains(err.Error(), "kmeans") ||
		!strings.Contains(err.Error(), "quantizer search") {
		t.Fatalf("got %v, want an error that names the search and the plugin", err)
	}
	testrun.Train(t, testrun.Again(t, failed), train.Options{Resume: true})
	testrun.SameRun(t, "with a plugin that was gone for a while, and without", whole.Train.Out,
		failed.Train.Out)
}
