package train_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestExtendedRun checks that a finished run continues with more steps and ends with the bits of a
// run that had them from the start, if the finished steps would have been the same.
func TestExtendedRun(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	for name, c := range map[string]struct{ short, long []string }{
		"constant": {
			[]string{"train.steps=6", `schedule={kind="constant", rate=3e-3}`,
				`method={lambda=2.0, silence=0.5, ramp="constant"}`},
			[]string{"train.steps=12", "method.silence=0.25"},
		},
		// 0.3·4 and 0.1·12 differ in float64, as do the strengths at step 4.
		"parq": {
			[]string{"train.steps=4", `schedule={kind="constant", rate=3e-3}`,
				`method={name="parq", anneal_start=0.3, anneal_end=0.6}`,
				`quantizer={weights={plugin="absmax"}}`},
			[]string{"train.steps=12", "method.anneal_start=0.1", "method.anneal_end=0.2"},
		},
		"an average": {
			[]string{"train.steps=6", `schedule={kind="constant", rate=3e-3}`, `method={form="off"}`,
				`train.average="uniform"`, "train.average_from=0.5"},
			[]string{"train.steps=12", "train.average_from=4"},
		},
		"warm-up as a fraction": {
			[]string{"train.steps=6", `schedule={kind="wsd", rate=3e-3, warmup=0.5, decay=0.0}`,
				`method={form="off"}`},
			[]string{"train.steps=12", "schedule.warmup=3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(c.short, "train.log_every=1")...)
			testrun.Train(t, testrun.Again(t, cfg), train.Options{})
			long := testrun.Again(t, cfg, c.long...)
			summary := testrun.Train(t, long, train.Options{Resume: true})
			if !summary.Completed || summary.Steps != 12 || summary.TotalSteps != 12 {
				t.Errorf("the summary is %+v", summary)
			}
			whole := testrun.Elsewhere(t, cfg, c.long...)
			testrun.Train(t, whole, train.Options{})
			testrun.SameTensors(t, "extended, and whole", testrun.Checkpoint(t, cfg.Train.Out, 12),
				testrun.Checkpoint(t, whole.Train.Out, 12))
			// The run now has 12 steps, and can be resumed with this number.
			testrun.Train(t, testrun.Again(t, cfg, c.long...), train.Options{Resume: true})
		})
	}
}

// TestExtendedByEpochs checks that a run on conversations continues with more epochs.
func TestExtendedByEpochs(t *testing.T) {
	testlevel.Long(t, "trains twice")
	cfg := testrun.ChatConfig(t, "data.epochs=1", `schedule={kind="constant", rate=3e-3}`,
		`method={form="off"}`)
	short := testrun.Train(t, cfg, train.Options{})
	_, err := train.Run(t.Context(),
		testrun.Again(t, cfg, fmt.Sprintf("train.steps=%d", short.Steps+1)),
		train.Options{Resume: true, Finder: testrun.Finder(t)})
	if e, ok := errors.AsType[*plaintoml.Error](err); !ok || e.Key != "train.steps" ||
		!strings.Contains(e.Hint, "raise data.epochs") {
		t.Errorf("with more steps than the epochs give: %v", err)
	}
	long := testrun.Train(t, testrun.Again(t, cfg, "data.epochs=2"), train.Options{Resume: true})
	whole := testrun.Elsewhere(t, cfg, "data.epochs=2")
	if s := testrun.Train(t, whole, train.Options{}); s.Steps <= short.Steps ||
		s.Steps != long.Steps || s.Tokens != long.Tokens {
		t.Errorf("%d steps and then %d, at once %d", short.Steps, long.Steps, s.Steps)
	}
	testrun.SameTensors(t, "extended, and whole", testrun.Newest(t, cfg.Train.Out),
		testrun.Newest(t, whole.Train.Out))
}

// TestExtendedBeforeItsDecay checks that a run with WSD, whose rates before the decay do not depend
// on its length, can be extended, also in the official form, which uses the next step's rate.
func TestExtendedBeforeItsDecay(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=10", `schedule={kind="wsd", rate=3e-3, warmup=2, decay=0.3}`,
		`method={lambda=2.0, silence=0.0, ramp="constant", variant="official"}`)
	runParts(t, cfg, 6)
	testrun.Train(t, testrun.Again(t, cfg, "train.steps=20"), train.Options{Resume: true})
	whole := testrun.Elsewhere(t, cfg, "train.steps=20")
	testrun.Train(t, whole, train.Options{})
	testrun.SameRun(t, "extended, and whole", cfg.Train.Out, whole.Train.Out)
}

// TestExtendedWithItsStrength checks that a run with a strength can be extended before its
// correction begins. The longer run has another λ, and the same strength.
func TestExtendedWithItsStrength(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=8", "train.log_every=1",
		`schedule={kind="constant", rate=3e-3}`,
		`method={strength=0.5, silence=0.75}`)
	runParts(t, cfg, 6)
	long := []string{"train.steps=12", "method.silence=0.5"}
	testrun.Train(t, testrun.Again(t, cfg, long...), train.Options{Resume: true})
	whole := testrun.Elsewhere(t, cfg, long...)
	testrun.Train(t, whole, train.Options{})
	testrun.SameRun(t, "extended, and whole", cfg.Train.Out, whole.Train.Out)
	list := records(t, cfg.Train.Out)
	last := list[len(list)-1]
	if last.Strength == nil || math.Abs(float64(*last.Strength)-0.5) > 1e-12 {
		t.Errorf("the last record has the strength %v, want 0.5", last.Strength)
	}
}

// TestNotExtended checks that an extension that would have changed a finished step is refused, with
// the key and the number of the step, and that the run stays unchanged.
func TestNotExtended(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	finder, err := plugin.NewFinder() // builds a plugin
	if err != nil {
		t.Fatal(err)
	}
	exe, err := finder.Find(t.Context(), filepath.Join("..", "..", "examples", "plugins", "ademamix"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		settings, longer []string
		key, want        string
	}{
		"one cycle": {[]string{`schedule={kind="onecycle_cos", rate=3e-3}`, `method={form="off"}`},
			nil, "schedule", "the learning rate of step 1 was 0.00281913"},
		"decayed": {[]string{`schedule={kind="wsd", rate=3e-3, warmup=2, decay=0.5}`,
			`method={form="off"}`}, nil, "schedule", "the learning rate of step 5 was 0.0021"},
		"on its ramp": {[]string{`schedule={kind="constant", rate=3e-3, warmup=2}`,
			"method={silence=0.5}"}, nil, "method.silence", "λ of step 4 was"},
		"a constant λ": {[]string{`schedule={kind="constant", rate=3e-3, warmup=2}`,
			`method={strength=0.3, silence=0.5, ramp="constant"}`}, []string{"method.silence=0.25"},
			"method.strength", "λ of step 4 was"},
		"an optimizer that knows the number of steps": {[]string{
			`schedule={kind="constant", rate=3e-3, warmup=2}`, `method={form="off"}`,
			fmt.Sprintf("optimizer={plugin=%q}", exe.Path)}, nil, "optimizer.plugin",
			"the optimizer's updates depend on the number of steps"},
		"another rate": {[]string{`schedule={kind="constant", rate=3e-3, warmup=2}`,
			`method={form="off"}`}, []string{"schedule.rate=1e-3"}, "", "schedule.rate was 0.003, is 0.001"},
		"an average": {[]string{`schedule={kind="constant", rate=3e-3}`, `method={form="off"}`,
			`train.average="ema"`, "train.average_from=0.5"}, nil,
			"train.average_from", "the average began at step 4, and would have begun at step 7"},
		"another warm-up": {[]string{`schedule={kind="wsd", rate=3e-3, warmup=2, decay=0.0}`,
			`method={form="off"}`}, []string{"schedule.warmup=3"}, "schedule", "the learning rate of step"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append([]string{"train.steps=6"}, c.settings...)...)
			testrun.Train(t, testrun.Again(t, cfg), train.Options{})
			before := read(t, rundir.At(cfg.Train.Out).Config().Name)
			_, err := train.Run(t.Context(), testrun.Again(t, cfg, append(c.longer, "train.steps=12")...),
				train.Options{Resume: true, Finder: testrun.Finder(t)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			var placed *plaintoml.Error
			if errors.As(err, &placed) != (c.key != "") || placed != nil &&
				(placed.Key != c.key || !strings.Contains(placed.Hint, "model.init = ")) {
				t.Errorf("the error is %#v, want one at %q", placed, c.key)
			}
			after, err := os.ReadFile(rundir.At(cfg.Train.Out).Config().Name)
			if err != nil || string(after) != string(before) {
				t.Errorf("run.toml has changed: %v", err)
			}
			if s, err := metrics.ReadSummary(rundir.At(cfg.Train.Out).Summary()); err != nil ||
				!s.Completed || s.Steps != 6 {
				t.Errorf("the summary has become %+v, %v", s, err)
			}
		})
	}
}

// TestSummarySaysWhyItEnded checks that the summary has the reason why a run ended early, and that
// there is none while the run continues.
func TestSummarySaysWhyItEnded(t *testing.T) {
	testlevel.Long(t, "trains several times")
	cfg, whole := poisoned(t, 1, `train.nan_policy="stop"`)[0], testrun.Config(t)
	summary := func() metrics.Summary {
		t.Helper()
		s, err := metrics.ReadSummary(rundir.At(cfg.Train.Out).Summary())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := summary(); s.Stopped != metrics.Interrupted || s.Completed || s.Error != "" {
		t.Errorf("interrupted: %+v", s)
	}
	err := failing(t, testrun.Again(t, cfg))
	if s := summary(); s.Stopped != metrics.Diverged || s.Completed || s.Parameters == 0 ||
		s.NonEmbedding == 0 || s.Error != err.Error() || s.Steps < 2 {
		t.Errorf("diverged: %+v, want %v", s, err)
	}
	console := &callAt{at: map[string]func(){"step 12/20": func() {
		if _, err := os.Stat(rundir.At(whole.Train.Out).Summary().Name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("under way again, there is a summary: %v", err)
		}
	}}}
	runParts(t, whole, 4)
	testrun.Train(t, testrun.Again(t, whole), train.Options{Resume: true, Console: console})
	if len(console.at) > 0 {
		t.Error("nobody looked while it was under way")
	}
}

// TestResumePrunes checks that a finished run which has more checkpoints than train.keep, as after
// a kill before pruning, prunes them when it is resumed, although it saves nothing more.
func TestResumePrunes(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=5", "train.keep=3")
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
	testrun.Train(t, testrun.Again(t, cfg, "train.keep=2"), train.Options{Resume: true})
	list, err := checkpoint.List(rundir.At(cfg.Train.Out).Checkpoints())
	if err != nil || len(list) != 2 || list[1].Step != 20 {
		t.Errorf("checkpoints %v, %v, want those of steps 15 and 20", list, err)
	}
}

// TestNotExtendedByItsLastStep checks that the last finished step counts, too: a run that was
// stopped right after the first step of its decay, or of the ramp of λ, cannot be extended, because
// this step would have been different. A run stopped one step earlier can.
func TestNotExtendedByItsLastStep(t *testing.T) {
	testlevel.Long(t, "trains several times")
	for _, c := range []struct {
		schedule, method, longer string
		refused                  int
		say                      string
	}{
		// The full rate lasts until step 5; in a run of 20 steps, until step 11.
		{`schedule={kind="wsd", rate=3e-3, warmup=1, decay=0.5}`, `method={form="off"}`, "train.steps=20",
			6, "of which 6 are done: the learning rate of step 6 was"},
		{`schedule={kind="constant", rate=3e-3, warmup=1}`, `method={silence=0.5}`, "train.steps=16", 5,
			"of which 5 are done: λ of step 5 was"},
	} {
		for _, stop := range []int{c.refused - 1, c.refused} {
			cfg := testrun.Config(t, "train.steps=8", c.schedule, c.method)
			runParts(t, cfg, stop)
			_, err := train.Run(t.Context(), testrun.Again(t, cfg, c.longer),
				train.Options{Resume: true, Finder: testrun.Finder(t)})
			if (stop == c.refused) != (err != nil) || err != nil && !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s, stopped at %d: %v", c.schedule, stop, err)
			}
		}
	}
}
