package train_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestRequests: a run that is asked for a checkpoint saves one and goes on; one that is
// asked to stop ends in order, and can be resumed.
func TestRequests(t *testing.T) {
	effort.Long(t, "waits for what runs are asked")
	cfg := problem(t, toyText, "train.steps=100000000", "train.trajectory_every=0", "method.pareto_every=0", "train.log_every=100000", "train.keep=100")
	dir := rundir.At(cfg.Train.Out)
	finder, ended := testrun.Finder(t), make(chan error, 1)
	go func() {
		_, err := train.Run(t.Context(), cfg, train.Options{Finder: finder})
		ended <- err
	}()
	await := func(what string, there func() bool) {
		t.Helper()
		for began := time.Now(); !there(); time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal(what)
			}
			select {
			case err := <-ended:
				t.Fatalf("the run ended before %s: %v", what, err)
			default:
			}
		}
	}
	await("records", func() bool { _, ok, _ := metrics.Last(dir.Metrics()); return ok })
	saved := func() int { list, _ := checkpoint.List(dir.Checkpoints()); return len(list) }
	if n := saved(); n != 0 {
		t.Fatalf("%d checkpoints before one was asked for", n)
	}
	if err := dir.Ask(rundir.Checkpoint); err != nil {
		t.Fatal(err)
	}
	await("the checkpoint that was asked for", func() bool { return saved() == 1 })
	if err := dir.Ask(rundir.Stop); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, train.ErrAsked) || !errors.Is(err, train.ErrInterrupted) {
			t.Errorf("the run ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the run does not stop")
	}
	summary, err := metrics.ReadSummary(dir.Summary())
	if err != nil || summary.Stopped != metrics.Interrupted || summary.Completed || saved() != 2 {
		t.Errorf("the summary is %+v, %v; %d checkpoints", summary, err, saved())
	}
	if dir.Take(rundir.Stop) || dir.Take(rundir.Checkpoint) {
		t.Error("a request is left")
	}
}
