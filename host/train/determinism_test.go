package train_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func TestOneSeedOneRun(t *testing.T) {
	a := testrun.Config(t, "method.pareto_every=5")
	b, other := testrun.Elsewhere(t, a), testrun.Elsewhere(t, a, "seed=1")
	sa, sb := testrun.Train(t, a, train.Options{}), testrun.Train(t, b, train.Options{})
	testrun.SameRun(t, "two runs of one seed", a.Train.Out, b.Train.Out)
	if *sa.ValLoss != *sb.ValLoss || *sa.ErrorNorm2 != *sb.ErrorNorm2 {
		t.Errorf("final losses %v and %v, errors %v and %v", *sa.ValLoss, *sb.ValLoss, *sa.ErrorNorm2,
			*sb.ErrorNorm2)
	}
	so := testrun.Train(t, other, train.Options{})
	if *so.ValLoss == *sa.ValLoss {
		t.Errorf("another seed gives the same final loss %v", *sa.ValLoss)
	}
}

// TestZeroLambdaIsOff checks that in both forms, λ = 0 gives the bits of a run without the method.
func TestZeroLambdaIsOff(t *testing.T) {
	testlevel.Long(t, "trains twice")
	off := testrun.Config(t, `method.form="off"`)
	testrun.Train(t, off, train.Options{})
	for _, form := range []string{"decoupled", "coupled"} {
		cfg := testrun.Elsewhere(t, off, fmt.Sprintf("method.form=%q", form), "method.lambda=0.0",
			"method.silence=0.0")
		testrun.Train(t, cfg, train.Options{})
		testrun.SameRun(t, form+" with λ = 0", off.Train.Out, cfg.Train.Out)
	}
	on := testrun.Elsewhere(t, off, `method.form="decoupled"`)
	testrun.Train(t, on, train.Options{})
	a, b := testrun.Values(t, testrun.Checkpoint(t, off.Train.Out, 20)),
		testrun.Values(t, testrun.Checkpoint(t, on.Train.Out, 20))
	if largestDifference(a, b, "param/layers.0.attn.qkv") == 0 {
		t.Error("λ = 2 gives the same parameters: the comparison compares nothing")
	}
}

// TestWhatIsRecordedChangesNothing checks that the intervals of logging, evaluation, measurement
// and checkpoints do not influence the parameters.
func TestWhatIsRecordedChangesNothing(t *testing.T) {
	often := testrun.Config(t, "method.pareto_every=2", "train.eval_every=3",
		"train.checkpoint_every=4")
	seldom := testrun.Elsewhere(t, often, "method.pareto_every=0", "train.eval_every=0",
		"train.checkpoint_every=0", "train.log_every=100")
	testrun.Train(t, often, train.Options{})
	testrun.Train(t, seldom, train.Options{})
	testrun.SameTensors(t, "often and seldom", testrun.Checkpoint(t, often.Train.Out, 20),
		testrun.Checkpoint(t, seldom.Train.Out, 20))
}

// TestCoupledIsDecoupledForSGD checks that both forms of the correction give the same steps with a
// linear optimizer and without decay: g + λe scaled by α, or g and λe scaled separately. In float32
// the two orders round differently, per step by at most half a unit in the last place of the
// largest weight, 2⁻²⁴ of it. The tolerance is 20 times that, for 20 steps; the observed difference
// is a third of it.
func TestCoupledIsDecoupledForSGD(t *testing.T) {
	overrides := []string{`optimizer.plugin="sgd"`, "train.weight_decay=0.0", "schedule.rate=0.1",
		"method.silence=0.0", "train.clip=0.0"}
	decoupled := testrun.Config(t, overrides...)
	coupled := testrun.Elsewhere(t, decoupled, `method.form="coupled"`)
	testrun.Train(t, decoupled, train.Options{})
	testrun.Train(t, coupled, train.Options{})
	a := testrun.Values(t, testrun.Checkpoint(t, decoupled.Train.Out, 20))
	b := testrun.Values(t, testrun.Checkpoint(t, coupled.Train.Out, 20))
	for name := range a {
		if d, largest := largestDifference(a, b, name), maxValue(a[name]); d > 20*0x1p-24*largest {
			t.Errorf("%s differs by %.2g, its largest element is %.2g", name, d, largest)
		}
	}
}

// TestResumeContinues checks that 10 steps and 10 resumed steps give the bits of 20 steps, also
// during the correction, with accumulated micro-batches, with other optimizers, and in the other
// form.
func TestResumeContinues(t *testing.T) {
	cases := map[string][]string{
		"quest and adamw": nil,
		"accumulated":     {"train.accumulate=3", "train.batch=2"},
		"coupled, sgd": {`optimizer.plugin="sgd"`, "optimizer.momentum=0.9", `method.form="coupled"`,
			"method.silence=0.2"},
		"official variant": {`method.variant="official"`, "method.silence=0.2"},
		"unquantized":      {`quantizer.plugin="none"`},
		"oscireset": {
			`method={name="oscireset", reset_start=0.0, reset_every=8, reset_window=4, reset_threshold=1.5}`},
		"winq":            {`method={name="winq", mix_every=4}`, `quantizer={plugin="lsq"}`},
		"parq":            {`method={name="parq"}`, `quantizer={plugin="absmax", bits=4}`},
		"tied head, muon": {`model.head="tied"`, `optimizer.plugin="muon"`},
		"fused":           {`device.kernels="fused"`, `device.products="integer"`},
		"bfloat16":        {`device.precision="bfloat16"`, `device.products="integer"`},
	}
	inShort := []string{"accumulated", "coupled, sgd", "oscireset", "tied head, muon", "bfloat16"}
	for name, overrides := range cases {
		if testing.Short() && !slices.Contains(inShort, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, overrides...)
			parts := testrun.Elsewhere(t, whole)
			ws := testrun.Train(t, whole, train.Options{})
			runParts(t, parts, 10)
			ps := testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "20 steps and 10 + 10", whole.Train.Out, parts.Train.Out)
			if *ws.ValLoss != *ps.ValLoss || *ws.TrainLoss != *ps.TrainLoss || ws.Tokens != ps.Tokens {
				t.Errorf("summaries differ: %v, %v, %d and %v, %v, %d", *ws.ValLoss, *ws.TrainLoss, ws.Tokens,
					*ps.ValLoss, *ps.TrainLoss, ps.Tokens)
			}
		})
	}
}

// TestManyResumes stops after every few steps.
func TestManyResumes(t *testing.T) {
	testlevel.Long(t, "stops a run after each step")
	whole := testrun.Config(t)
	testrun.Train(t, whole, train.Options{})
	inParts(t, whole, 1, 2, 8, 9, 16, 19)
}

// runParts trains up to each of the given steps, resuming for each.
func runParts(t *testing.T, cfg *config.Config, stops ...int) {
	t.Helper()
	for _, stop := range stops {
		summary, err := train.Run(t.Context(), testrun.Again(t, cfg),
			train.Options{Resume: true, StopAfter: stop, Finder: testrun.Finder(t)})
		if !errors.Is(err, train.ErrInterrupted) {
			t.Fatalf("stopping after %d steps: %v", stop, err)
		}
		if summary == nil || summary.Completed || summary.Steps != stop {
			t.Fatalf("stopping after %d steps: the summary is %+v", stop, summary)
		}
	}
}

// TestAccumulation checks that two micro-batches of 4 sequences equal one of 8. Sums are in another
// order, which changes the last bits of gradients; Adam, whose first steps are nearly α·sign(g),
// amplifies that where a gradient is nearly zero. Losses are means over all weights and differ by
// some 2⁻²⁴ × √steps. The test demands 1e-5 relative, without quantization, so that no code can
// change.
func TestAccumulation(t *testing.T) {
	one := testrun.Config(t, "train.batch=8", `quantizer.plugin="none"`, "train.eval_every=0")
	two := testrun.Elsewhere(t, one, "train.batch=4", "train.accumulate=2")
	a, b := testrun.Train(t, one, train.Options{}), testrun.Train(t, two, train.Options{})
	if a.Tokens != b.Tokens {
		t.Errorf("%d and %d tokens", a.Tokens, b.Tokens)
	}
	la, lb := losses(t, one.Train.Out), losses(t, two.Train.Out)
	for i := range la {
		if d := relative(la[i], lb[i]); d > 1e-5 {
			t.Errorf("step %d: loss %v with a batch of 8, %v with 2 × 4: relative difference %.2g", i+1,
				la[i], lb[i], d)
		}
	}
}

// TestSkippedStepsLeaveNoTrace checks that a step that is not finite changes no parameter and no
// state, is counted, and does not end the run.
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
		} else if x, y := testrun.Values(t, before), testrun.Values(t, after); largestDifference(x, y,
			"param/head") == 0 {
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

// TestSkippedStepsAndResume checks that resuming between skipped steps changes nothing.
func TestSkippedStepsAndResume(t *testing.T) {
	testlevel.Long(t, "trains several times")
	runs := poisoned(t, 2, "train.max_skipped=20")
	testrun.Train(t, testrun.Again(t, runs[0]), train.Options{Resume: true})
	runParts(t, runs[1], 7, 10, 15)
	testrun.Train(t, testrun.Again(t, runs[1]), train.Options{Resume: true})
	testrun.SameRun(t, "with skipped steps, whole and in parts", runs[0].Train.Out, runs[1].Train.Out)
}

// TestTooManySkipped checks that a run ends when it has skipped too many steps, with a checkpoint
// of the step before, from which it continues if more are allowed.
func TestTooManySkipped(t *testing.T) {
	runs := poisoned(t, 2, "train.max_skipped=1")
	stopped, whole := runs[0], runs[1]
	err := failing(t, testrun.Again(t, stopped))
	for _, want := range []string{"step ", "loss NaN", "not finite", "2 such steps",
		"train.max_skipped = 1", "schedule.rate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	list := records(t, stopped.Train.Out)
	if last := list[len(list)-1]; newest(t, stopped) != last.Step || last.Skipped != 1 ||
		last.Step < 3 {
		t.Errorf("the newest checkpoint is of step %d, the last record of step %d with %d skipped",
			newest(t, stopped), last.Step, last.Skipped)
	}
	testrun.Train(t, testrun.Again(t, stopped, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.Train(t, testrun.Again(t, whole, "train.max_skipped=20"), train.Options{Resume: true})
	testrun.SameRun(t, "stopped for skipped steps and not", stopped.Train.Out, whole.Train.Out)
}

// TestPolicyStop checks that the first step that is not finite ends the run, with a checkpoint of
// the step before.
func TestPolicyStop(t *testing.T) {
	runs := poisoned(t, 2, `train.nan_policy="stop"`)
	cfg, whole := runs[0], runs[1]
	err := failing(t, testrun.Again(t, cfg))
	if !strings.Contains(err.Error(), `train.nan_policy = "stop"`) ||
		!strings.Contains(err.Error(), "1 such steps") {
		t.Errorf("the error is %v", err)
	}
	if n := newest(t, cfg); n < 2 || n == 20 {
		t.Errorf("the newest checkpoint is of step %d", n)
	}
	// Resumed with the other policy, it equals a run that had this policy from here on.
	skip := []string{`train.nan_policy="skip"`, "train.max_skipped=20"}
	testrun.Train(t, testrun.Again(t, cfg, skip...), train.Options{Resume: true})
	testrun.Train(t, testrun.Again(t, whole, skip...), train.Options{Resume: true})
	testrun.SameRun(t, "stopped by the policy and not", cfg.Train.Out, whole.Train.Out)
}

// TestDirectionThatIsNotFinite checks that a run ends at the first step after an optimizer has made
// a parameter NaN, here by an iteration that diverges.
func TestDirectionThatIsNotFinite(t *testing.T) {
	err := failing(t, testrun.Config(t, `optimizer={plugin="muon", ns_a=100.0, ns_steps=30}`))
	for _, want := range []string{"step 2: parameter layers.0.", "not finite since an update",
		"[optimizer]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestDivergence checks that a rate and a decay that make the parameters diverge end in an error.
func TestDivergence(t *testing.T) {
	cfg := testrun.Config(t, `schedule.kind="constant"`, "schedule.rate=1000.0",
		"train.weight_decay=1000.0", "train.max_skipped=2", "train.eval_every=0")
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

// TestCounts checks that each record of a change and the summary have the method's counts, in one
// run and in two parts. Neither has numbers of other methods.
func TestCounts(t *testing.T) {
	cfg := testrun.Config(t,
		`method={name="oscireset", reset_start=0.0, reset_every=8, reset_window=4, reset_threshold=1.01}`,
		"train.log_every=100")
	s := testrun.Train(t, cfg, train.Options{})
	n := s.Counts["weights_set_back"]
	if n == 0 || s.Method != "oscireset" ||
		fmt.Sprint(s.Settings) != "map[reset_every:8 reset_start:0 reset_threshold:1.01 reset_window:4]" {
		t.Errorf("%s with %v counts %v", s.Method, s.Settings, s.Counts)
	}
	var steps []int
	last := int64(0)
	for r, err := range metrics.Each[metrics.Record](rundir.At(cfg.Train.Out).Metrics()) {
		if err != nil {
			t.Fatal(err)
		}
		if now := r.Counts["weights_set_back"]; now != last {
			steps, last = append(steps, r.Step), now
		}
		if r.Lambda != nil || r.Strength != nil || r.AppliedParams != nil {
			t.Errorf("step %d has numbers of CAGE", r.Step)
		}
	}
	if fmt.Sprint(steps) != "[6 14]" || last != n {
		t.Errorf("records count at steps %v up to %d, the summary %d", steps, last, n)
	}
	parts := testrun.Elsewhere(t, cfg)
	if _, err := train.Run(t.Context(), parts,
		train.Options{StopAfter: 9, Finder: testrun.Finder(t)}); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	if again := testrun.Train(t, testrun.Again(t, parts),
		train.Options{Resume: true}); again.Counts["weights_set_back"] != n {
		t.Errorf("in two parts it counts %v, want %d", again.Counts, n)
	}
}
