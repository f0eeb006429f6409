package train_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
)

// TestSkippedStepsLeaveNoTrace: a step that is not finite changes no parameter and no
// state, is counted, and the run goes on.
func TestSkippedStepsLeaveNoTrace(t *testing.T) {
	cfg := poisoned(t, 1, "train.checkpoint_every=1", "train.keep=100", "train.max_skipped=20")[0]
	summary := testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	skipped, before := 0, testrun.Checkpoint(t, cfg.Train.Out, 2)
	for _, r := range records(t, cfg.Train.Out) {
		if r.Step <= 2 || r.ValLoss != nil {
			continue
		}
		after := testrun.Checkpoint(t, cfg.Train.Out, r.Step)
		if r.Skipped > skipped {
			skipped++
			if !math.IsNaN(float64(r.Loss)) || r.Skipped != skipped {
				t.Errorf("step %d: loss %v, skipped %d, want NaN and %d", r.Step, r.Loss, r.Skipped, skipped)
			}
			testrun.SameTensors(t, "before and after a skipped step", before, after)
		} else if x, y := testrun.Values(t, before), testrun.Values(t, after); largestDifference(x, y, "param/head") == 0 {
			t.Errorf("step %d is finite and changes nothing", r.Step)
		}
		before = after
	}
	if skipped < 2 || summary.Skipped != skipped {
		t.Errorf("%d steps were skipped, the summary says %d; want several", skipped, summary.Skipped)
	}
	if !summary.Completed || summary.ValLoss == nil || math.IsNaN(float64(*summary.ValLoss)) {
		t.Errorf("the summary is %+v", summary)
	}
}

// TestSkippedStepsAndResume: a resume between skipped steps changes nothing.
func TestSkippedStepsAndResume(t *testing.T) {
	runs := poisoned(t, 2, "train.max_skipped=20")
	testrun.Train(t, testrun.Again(t, runs[0]), train.Options{Resume: true})
	runParts(t, runs[1], 7, 10, 15)
	testrun.Train(t, testrun.Again(t, runs[1]), train.Options{Resume: true})
	testrun.SameRun(t, "with skipped steps, whole and in parts", runs[0].Train.Out, runs[1].Train.Out)
}

// TestTooManySkipped ends a run at the step too many, with a checkpoint of the step
// before from which it can go on when more are allowed.
func TestTooManySkipped(t *testing.T) {
	runs := poisoned(t, 2, "train.max_skipped=1")
	stopped, whole := runs[0], runs[1]
	err := failing(t, testrun.Again(t, stopped))
	for _, want := range []string{"step ", "loss NaN", "not finite", "2 such steps", "train.max_skipped = 1", "schedule.rate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	list := records(t, stopped.Train.Out)
	if last := list[len(list)-1]; newest(t, stopped) != last.Step || last.Skipped != 1 || last.Step < 3 {
		t.Errorf("the newest checkpoint is of step %d, the last record of step %d with %d skipped", newest(t, stopped), last.Step, last.Skipped)
	}
	testrun.Train(t, testrun.Again(t, stopped, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.Train(t, testrun.Again(t, whole, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.SameRun(t, "stopped for skipped steps and not", stopped.Train.Out, whole.Train.Out)
}

// TestPolicyStop: the first step that is not finite ends the run, with a checkpoint of the step before.
func TestPolicyStop(t *testing.T) {
	runs := poisoned(t, 2, `train.nan_policy="stop"`)
	cfg, whole := runs[0], runs[1]
	err := failing(t, testrun.Again(t, cfg))
	if !strings.Contains(err.Error(), `train.nan_policy = "stop"`) || !strings.Contains(err.Error(), "1 such steps") {
		t.Errorf("the error is %v", err)
	}
	if n := newest(t, cfg); n < 2 || n == 20 {
		t.Errorf("the newest checkpoint is of step %d", n)
	}
	// With the other policy it goes on, as one that had it from the beginning.
	skip := []string{`train.nan_policy="skip"`, "train.max_skipped=20"}
	testrun.Train(t, testrun.Again(t, cfg, skip...), train.Options{Resume: true})
	testrun.Train(t, testrun.Again(t, whole, skip...), train.Options{Resume: true})
	testrun.SameRun(t, "stopped by the policy and not", cfg.Train.Out, whole.Train.Out)
}

// TestPoisonedWeight: a NaN in a quantized weight makes every step fail.
func TestPoisonedWeight(t *testing.T) {
	cfg := testrun.Config(t, "train.max_skipped=3")
	runParts(t, cfg, 2)
	poison(t, cfg, "param/layers.0.mlp.w1", func([]int) (from, to int) { return 5, 6 })
	failing(t, testrun.Again(t, cfg))
	if n := newest(t, cfg); n != 5 {
		t.Errorf("the newest checkpoint is of step %d, want 2 finite ones and 3 skipped", n)
	}
}

// TestDivergence: a rate and a decay that blow the parameters up end in a clear error.
func TestDivergence(t *testing.T) {
	cfg := testrun.Config(t, `schedule.kind="constant"`, "schedule.rate=1000.0", "train.weight_decay=1000.0", "train.max_skipped=2", "train.eval_every=0")
	failing(t, cfg)
}

// failing runs a training that must end because it is not finite.
func failing(t *testing.T, cfg *config.Config) error {
	t.Helper()
	summary, err := train.Run(t.Context(), cfg, train.Options{Resume: true, Finder: testrun.Finder(t)})
	if summary != nil || !errors.Is(err, train.ErrNotFinite) {
		t.Fatalf("got the summary %+v and the error %v", summary, err)
	}
	return err
}
