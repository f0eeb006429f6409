package train_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/effort"
)

func TestOneSeedOneRun(t *testing.T) {
	a := testrun.Config(t, "method.pareto_every=5")
	b, other := testrun.Elsewhere(t, a), testrun.Elsewhere(t, a, "seed=1")
	sa, sb := testrun.Train(t, a, train.Options{}), testrun.Train(t, b, train.Options{})
	testrun.SameRun(t, "two runs of one seed", a.Train.Out, b.Train.Out)
	if *sa.ValLoss != *sb.ValLoss || *sa.ErrorNorm2 != *sb.ErrorNorm2 {
		t.Errorf("final losses %v and %v, errors %v and %v", *sa.ValLoss, *sb.ValLoss, *sa.ErrorNorm2, *sb.ErrorNorm2)
	}
	so := testrun.Train(t, other, train.Options{})
	if *so.ValLoss == *sa.ValLoss {
		t.Errorf("another seed gives the same final loss %v", *sa.ValLoss)
	}
}

// TestZeroLambdaIsOff: with λ = 0 a run has the bits of one without the method, in every form.
func TestZeroLambdaIsOff(t *testing.T) {
	off := testrun.Config(t, `method.form="off"`)
	testrun.Train(t, off, train.Options{})
	for _, form := range []string{"decoupled", "coupled"} {
		cfg := testrun.Elsewhere(t, off, fmt.Sprintf("method.form=%q", form), "method.lambda=0.0", "method.silence=0.0")
		testrun.Train(t, cfg, train.Options{})
		testrun.SameRun(t, form+" with λ = 0", off.Train.Out, cfg.Train.Out)
	}
	on := testrun.Elsewhere(t, off, `method.form="decoupled"`)
	testrun.Train(t, on, train.Options{})
	a, b := testrun.Values(t, testrun.Checkpoint(t, off.Train.Out, 20)), testrun.Values(t, testrun.Checkpoint(t, on.Train.Out, 20))
	if largestDifference(a, b, "param/layers.0.attn.qkv") == 0 {
		t.Error("λ = 2 gives the same parameters: the comparison compares nothing")
	}
}

// TestWhatIsRecordedChangesNothing: how often a run logs, evaluates, measures and
// saves has no influence on its parameters.
func TestWhatIsRecordedChangesNothing(t *testing.T) {
	often := testrun.Config(t, "method.pareto_every=2", "train.eval_every=3", "train.checkpoint_every=4")
	seldom := testrun.Elsewhere(t, often, "method.pareto_every=0", "train.eval_every=0", "train.checkpoint_every=0", "train.log_every=100")
	testrun.Train(t, often, train.Options{})
	testrun.Train(t, seldom, train.Options{})
	testrun.SameTensors(t, "often and seldom", testrun.Checkpoint(t, often.Train.Out, 20), testrun.Checkpoint(t, seldom.Train.Out, 20))
}

// TestCoupledIsDecoupledForSGD: g + λe scaled by α, and g and λe scaled apart, are one
// step when the optimizer is linear and there is no decay. In float32 the two orders
// round differently in each step, by at most half a unit in the last place of the
// largest weight: 2⁻²⁴ of it. The tolerance is that times 20 steps; a third of it is
// seen.
func TestCoupledIsDecoupledForSGD(t *testing.T) {
	overrides := []string{`optimizer.plugin="sgd"`, "train.weight_decay=0.0", "schedule.rate=0.1", "method.silence=0.0", "train.clip=0.0"}
	decoupled := testrun.Config(t, overrides...)
	coupled := testrun.Elsewhere(t, decoupled, `method.form="coupled"`)
	testrun.Train(t, decoupled, train.Options{})
	testrun.Train(t, coupled, train.Options{})
	a := testrun.Values(t, testrun.Checkpoint(t, decoupled.Train.Out, 20))
	b := testrun.Values(t, testrun.Checkpoint(t, coupled.Train.Out, 20))
	for name := range a {
		if d, largest := largestDifference(a, b, name), largestValue(a[name]); d > 20*0x1p-24*largest {
			t.Errorf("%s differs by %.2g, its largest element is %.2g", name, d, largest)
		}
	}
}

// TestResumeContinues: 20 steps are 10 steps and 10 resumed ones, bit for bit, also
// when the correction is under way, micro-batches are accumulated, and the optimizer
// or the form is another one.
func TestResumeContinues(t *testing.T) {
	cases := map[string][]string{
		"quest and adamw":  nil,
		"accumulated":      {"train.accumulate=3", "train.batch=2"},
		"coupled, sgd":     {`optimizer.plugin="sgd"`, "optimizer.momentum=0.9", `method.form="coupled"`, "method.silence=0.2"},
		"official variant": {`method.variant="official"`, "method.silence=0.2"},
		"unquantized":      {`quantizer.plugin="none"`},
		"tied head, muon":  {`model.head="tied"`, `optimizer.plugin="muon"`},
	}
	for name, overrides := range cases {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, overrides...)
			parts := testrun.Elsewhere(t, whole)
			ws := testrun.Train(t, whole, train.Options{})
			runParts(t, parts, 10)
			ps := testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "20 steps and 10 + 10", whole.Train.Out, parts.Train.Out)
			if *ws.ValLoss != *ps.ValLoss || *ws.TrainLoss != *ps.TrainLoss || ws.Tokens != ps.Tokens {
				t.Errorf("summaries differ: %v, %v, %d and %v, %v, %d", *ws.ValLoss, *ws.TrainLoss, ws.Tokens, *ps.ValLoss, *ps.TrainLoss, ps.Tokens)
			}
		})
	}
}

// TestManyResumes stops after every few steps.
func TestManyResumes(t *testing.T) {
	effort.Long(t, "stops a run after each step")
	whole := testrun.Config(t)
	parts := testrun.Elsewhere(t, whole)
	testrun.Train(t, whole, train.Options{})
	runParts(t, parts, 1, 2, 8, 9, 16, 19)
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "one run and seven parts", whole.Train.Out, parts.Train.Out)
}

// runParts trains up to each of the steps, in a run of its own each time.
func runParts(t *testing.T, cfg *config.Config, stops ...int) {
	t.Helper()
	for _, stop := range stops {
		summary, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, StopAfter: stop, Finder: testrun.Finder(t)})
		if !errors.Is(err, train.ErrInterrupted) {
			t.Fatalf("stopping after %d steps: %v", stop, err)
		}
		if summary == nil || summary.Completed || summary.Steps != stop {
			t.Fatalf("stopping after %d steps: the summary is %+v", stop, summary)
		}
	}
}

// TestAccumulation: two micro-batches of 4 sequences are one of 8. Sums are taken in
// another order; that shows in the last bits of gradients, and Adam, whose first
// steps are nearly α·sign(g), enlarges it where a gradient is nearly zero. Losses are
// means over all weights and stay within some 2⁻²⁴ × √steps of each other: 1e-5
// relative is asked for, without quantization, where no code can flip.
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
			t.Errorf("step %d: loss %v with a batch of 8, %v with 2 × 4: relative difference %.2g", i+1, la[i], lb[i], d)
		}
	}
}
