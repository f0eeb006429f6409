package train_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestKilledAtAnyMoment kills the process of a training with SIGKILL again and again,
// each time at a random moment after it has saved something new, resumes it, and
// demands that it ends where an undisturbed run ends, bit for bit.
func TestKilledAtAnyMoment(t *testing.T) {
	effort.Long(t, "starts and kills processes")
	t.Run("plain", func(t *testing.T) {
		whole := testrun.Config(t, "train.checkpoint_every=2", "train.keep=1")
		killed := testrun.Elsewhere(t, whole)
		killAndCompare(t, whole, killed)
	})
	t.Run("accumulated, with skipped steps", func(t *testing.T) {
		runs := poisoned(t, 2, "train.batch=2", "train.accumulate=2", "train.max_skipped=20", "train.checkpoint_every=3")
		killAndCompare(t, runs[0], runs[1])
		if last := records(t, runs[1].Train.Out); last[len(last)-1].Skipped == 0 {
			t.Error("no step was skipped")
		}
	})
}

// TestKilledBesideRefreshes: the same where refreshes are computed beside the steps,
// and most checkpoints are taken while some are.
func TestKilledBesideRefreshes(t *testing.T) {
	effort.Long(t, "starts and kills processes")
	for name, overrides := range lateRefreshes {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, append(overrides, "train.checkpoint_every=3", "train.keep=1")...)
			killAndCompare(t, whole, testrun.Elsewhere(t, whole))
		})
	}
}

// killAndCompare runs the one undisturbed and the other with kills.
func killAndCompare(t *testing.T, whole, killed *config.Config) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	kills := 0
	finder := testrun.Finder(t)
	checkpoints := killed.Train.Steps / killed.Train.CheckpointEvery
	for rounds := 0; ; rounds++ {
		if rounds > checkpoints+1 { // each round is one checkpoint nearer to the end, or the end
			t.Fatalf("the run of %d checkpoints does not come to its end", checkpoints)
		}
		before := newest(t, killed)
		h := startHost(t, killed, finder)
		h.await(t, "a new checkpoint", func() bool { return newest(t, killed) > before })
		time.Sleep(time.Duration(random.Int64N(int64(15 * time.Millisecond))))
		if !h.kill(t) {
			if code := h.cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("the host ended with exit code %d", code)
			}
			break
		}
		kills++
	}
	t.Logf("killed %d times", kills)
	if kills < 2 {
		t.Errorf("the run was killed %d times only", kills)
	}
	testrun.Train(t, whole, train.Options{Resume: true})
	testrun.SameRun(t, "undisturbed and killed", whole.Train.Out, killed.Train.Out)
}

// newest is the step of the newest checkpoint of a run, 0 for none.
func newest(t *testing.T, cfg *config.Config) int {
	t.Helper()
	entries, err := checkpoint.List(rundir.At(cfg.Train.Out).Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Step
}
