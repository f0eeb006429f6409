package train_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// overrides are [[quantizer.overrides]], each as the inside of an inline table.
func overrides(list ...string) string {
	return "quantizer.overrides=[{" + strings.Join(list, "}, {") + "}]"
}

// TestOverridesOfEverything: what overrides say for everything, or for all steps, is what the table of the quantizer says.
func TestOverridesOfEverything(t *testing.T) {
	plain := testrun.Config(t, testrun.TwoLayers)
	testrun.Train(t, plain, train.Options{})
	for name, set := range map[string][]string{
		"all names":     {`quantizer={plugin="none"}`, `method.form="decoupled"`, overrides(`match="*", plugin="quest", bits=4`)},
		"all blocks":    {`quantizer={plugin="none"}`, `method.form="decoupled"`, overrides(`layers=[0, -1], plugin="quest", bits=4`)},
		"all steps":     {`quantizer={plugin="none"}`, `method.form="decoupled"`, overrides(`from=1, to=20, plugin="quest", bits=4`)},
		"the same":      {overrides(`from=7, plugin="quest", bits=4`)}, // compiled anew, to the same programs
		"more steps":    {overrides(`layers=1, to=9, plugin="quest", bits=4`, `layers=0, from=4, to=1000, plugin="quest", bits=4`)},
		"nothing of it": {overrides(`match="*", plugin="absmax"`, `match="*", plugin="quest", bits=4`)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, plain, set...)
			_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
			if name == "nothing of it" {
				if err == nil || !strings.Contains(err.Error(), "quantizer.overrides[0]: has no effect") {
					t.Errorf("an override that others replace: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			testrun.SameRun(t, name, plain.Train.Out, cfg.Train.Out)
		})
	}
}

// TestPhaseFromCheckpoint: a run that quantizes from a step on is a run in full precision up to there, and goes on as one that
// is given a quantizer then.
func TestPhaseFromCheckpoint(t *testing.T) {
	const from = 8
	quantized := testrun.Config(t)
	full := testrun.Elsewhere(t, quantized, `quantizer={plugin="none"}`, `method.form="decoupled"`)
	phases := testrun.Elsewhere(t, quantized, overrides(fmt.Sprintf(`to=%d, plugin="none"`, from-1)), "train.checkpoint_every=7", "train.keep=10")
	runParts(t, full, from-1)
	testrun.Train(t, phases, train.Options{})
	testrun.SameTensors(t, "before the phase", testrun.Checkpoint(t, full.Train.Out, from-1), testrun.Checkpoint(t, phases.Train.Out, from-1))
	toml := rundir.At(full.Train.Out).Config()
	cfg, err := config.Load(toml.Name, []string{`quantizer={plugin="quest", bits=4}`, `quantizer.weights={plugin="quest", bits=4}`, `quantizer.activations={plugin="quest", bits=4}`})
	if err != nil {
		t.Fatal(err)
	}
	text, err := cfg.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteBytes(toml, text); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, cfg, train.Options{Resume: true})
	testrun.SameRun(t, "phases, and a quantizer from a checkpoint on", phases.Train.Out, full.Train.Out)
	testrun.Train(t, quantized, train.Options{})
	if losses(t, quantized.Train.Out)[from-2] == losses(t, phases.Train.Out)[from-2] {
		t.Error("the first phase is quantized")
	}
}

// staged are overrides with phases from the steps 1, 6 and 13.
func staged(first, second string) string {
	return overrides(`to=5, role="all", plugin="none"`, `from=6, to=12, `+first, `from=13, `+second)
}

// TestPhasesResume: a run whose quantizers change is the same in one go and in parts, wherever it stops; a checkpoint is
// evaluated with the quantizers of its step.
func TestPhasesResume(t *testing.T) {
	testlevel.Long(t, "trains models in parts")
	for name, set := range map[string][]string{
		"bits":     {staged(`plugin="quest", bits=8`, `plugin="quest", bits=4`), "method.silence=0.2"},
		"learned":  {staged(`plugin="lsq", bits=8`, `plugin="lsq", bits=4`), "train.accumulate=2", "train.batch=2"},
		"blocks":   {staged(`layers=0, plugin="lsq", bits=4`, `layers=-1, plugin="quest"`), testrun.TwoLayers, `quantizer={plugin="lsq"}`},
		"coupled":  {staged(`plugin="quest"`, `plugin="absmax"`), `method.form="coupled"`, "method.silence=0.2", "method.pareto_every=4"},
		"soap":     {staged(`plugin="quest"`, `plugin="none"`), `optimizer={plugin="soap", freq=3}`, `method.form="decoupled"`},
		"backward": {staged(`role="gradients", plugin="mxfp4"`, `role="backward", plugin="mxfp4", rounding="stochastic"`), "model.hidden=64", "model.context=32"},
		"followed": {staged(`plugin="quest", bits=8`, `plugin="quest", bits=4`), "diagnostics.every=2", "diagnostics.window=3"},
	} {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, append(set, "train.eval_every=2", "train.eval_batches=0", "train.keep=20", "train.checkpoint_every=1")...)
			testrun.Train(t, whole, train.Options{})
			inParts(t, whole, 3, 5, 6, 12, 15)
			evaluatesAsTrained(t, whole.Train.Out, 4, 6, 12, 14)
		})
	}
}

// evaluatesAsTrained compares the losses that a run has recorded with those of its checkpoints.
func evaluatesAsTrained(t *testing.T, dir string, steps ...int) {
	t.Helper()
	for _, step := range steps {
		want := recordedLoss(t, dir, step)
		if got, _ := testrun.Loss(t, dir, trained.Options{Step: step}); got != want {
			t.Errorf("the checkpoint of step %d has the loss %v, the run had %v", step, got, want)
		}
	}
}

func recordedLoss(t *testing.T, dir string, step int) float64 {
	t.Helper()
	for _, r := range records(t, dir) {
		if r.Step == step && r.ValLoss != nil {
			return float64(*r.ValLoss)
		}
	}
	t.Fatalf("%s has no evaluation after step %d", dir, step)
	return 0
}

// TestPhasesOfLearnedSteps: step sizes that are trained begin where their quantizer does, go on while it stays, and are gone
// after it.
func TestPhasesOfLearnedSteps(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, `quantizer={plugin="lsq", bits=8}`, "train.checkpoint_every=1", "train.keep=30",
		`optimizer.groups=[{match="quantizer.*", rate=0.0}]`, // what begins is seen as it is
		overrides(`to=3, layers=1, plugin="none"`, `from=10, layers=0, plugin="lsq", bits=4`, `from=15, layers=1, plugin="quest"`))
	testrun.Train(t, cfg, train.Options{})
	const first, second = "layers.0.attn.out", "layers.1.attn.out"
	sizes := func(step int, site string) []float32 {
		return testrun.Values(t, testrun.Checkpoint(t, cfg.Train.Out, step))[program.KindParam.Of(sdk.StateTensor{Name: "step"}.At(site))]
	}
	if sizes(3, first) == nil || sizes(3, second) != nil || sizes(4, second) == nil || sizes(14, second) == nil || sizes(15, second) != nil {
		t.Errorf("step sizes of block 0 %v and of block 1 %v, %v, %v, %v after steps 3, 3, 4, 14, 15", sizes(3, first), sizes(3, second), sizes(4, second), sizes(14, second), sizes(15, second))
	}
	// With a sixteenth of the levels steps are larger.
	if was, is := sizes(9, first)[0], sizes(10, first)[0]; was != sizes(1, first)[0] || is < 2*was {
		t.Errorf("the step size of block 0 is %v for 8 bits and %v for 4", was, is)
	}
	if was, is := sizes(9, second)[0], sizes(10, second)[0]; is != was || was == sizes(4, first)[0] {
		t.Errorf("the step size of block 1, whose quantizer stays, goes from %v to %v", was, is)
	}
}

// TestPhasesOfExamples: quantizers with state, and with a parameter that several sites share.
func TestPhasesOfExamples(t *testing.T) {
	testlevel.Long(t, "builds plugins")
	finder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]string{"delayed": "", "stochastic": "", "spin": `, block=16, share="layer"`, "vq": ", bits=4"} {
		t.Run(name, func(t *testing.T) {
			exe, err := finder.Find(t.Context(), filepath.Join("../../examples/plugins", name))
			if err != nil {
				t.Fatal(err)
			}
			use := fmt.Sprintf("plugin=%q%s", exe.Path, settings)
			whole := testrun.Config(t, testrun.TwoLayers, "train.accumulate=2", "train.batch=2",
				overrides(`to=5, plugin="none"`, `from=6, layers=1, `+use, `from=13, layers=0, `+use))
			testrun.Train(t, whole, train.Options{})
			inParts(t, whole, 5, 6, 12, 17)
		})
	}
}

// TestPhasesAreChecked: what cannot be made right is refused before the run begins.
func TestPhasesAreChecked(t *testing.T) {
	for says, set := range map[string][]string{
		"quantizer.overrides[0]: matches none of the model's quantized weights and activations": {overrides(`match="layer.*", from=3, plugin="none"`)},
		"layers.0.attn.qkv, layers.0.attn.out":                                                  {overrides(`match="*.query", from=3, role="weights", plugin="none"`)},
		"has an optimizer with preconditioners":                                                 {overrides(`from=3, role="weights", plugin="lsq", granularity="row"`), `optimizer.groups=[{match="quantizer.*", plugin="soap", precondition_1d=true}]`},
	} {
		_, err := train.Run(t.Context(), testrun.Config(t, set...), train.Options{Finder: testrun.Finder(t)})
		var problems plaintoml.Errors
		var one *plaintoml.Error
		if err == nil || !strings.Contains(err.Error(), says) || !errors.As(err, &problems) && !errors.As(err, &one) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestPhasesAreExtended: a run with more steps than it was begun with goes on in the phase of each step.
func TestPhasesAreExtended(t *testing.T) {
	long := testrun.Config(t, `schedule.kind="constant"`, "method.silence=0.0", `method.ramp="constant"`, "train.steps=12", overrides(`to=5, plugin="none"`, `from=9, plugin="absmax"`))
	testrun.Train(t, long, train.Options{})
	parts := testrun.Elsewhere(t, long, "train.steps=10")
	testrun.Train(t, parts, train.Options{})
	testrun.Train(t, testrun.Again(t, parts, "train.steps=12"), train.Options{Resume: true})
	testrun.SameTensors(t, "12 steps, and 10 and 2 more", testrun.Newest(t, long.Train.Out), testrun.Newest(t, parts.Train.Out))
}

// TestPhasesAreReplayed: the steps across a border are computed again.
func TestPhasesAreReplayed(t *testing.T) {
	cfg := testrun.Config(t, overrides(`to=11, plugin="absmax"`), "train.checkpoint_every=8", "train.keep=5")
	testrun.Train(t, cfg, train.Options{})
	from := 8
	got, err := train.Replay(t.Context(), cfg.Train.Out, train.ReplayOptions{From: &from, Finder: testrun.Finder(t)})
	if err != nil || len(got.Differences) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	entries, err := checkpoint.List(rundir.At(cfg.Train.Out).Checkpoints())
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
}

// TestPhasesAreEstimated: an estimate is that of the phase that needs most.
func TestPhasesAreEstimated(t *testing.T) {
	cfg := testrun.Config(t, overrides(`to=5, plugin="none"`))
	report, err := train.EstimateMemory(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := train.EstimateMemory(t.Context(), testrun.Again(t, cfg, "quantizer.overrides=[]"), train.Options{Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if report.Bytes != plain.Bytes {
		t.Errorf("%g bytes, and %g without phases", report.Bytes, plain.Bytes)
	}
}

// TestPhasesOnXLA: steps that are one executable change their quantizers as the chain does.
func TestPhasesOnXLA(t *testing.T) {
	onXLA(t, 2)
	cpu := testrun.Config(t, testrun.TwoLayers, staged(`plugin="lsq", bits=8`, `plugin="quest", bits=8`))
	testrun.Train(t, cpu, train.Options{})
	want := losses(t, cpu.Train.Out)
	for _, count := range []int{1, 2} {
		xla := onCUDA(t, cpu, count)
		testrun.Train(t, xla, train.Options{})
		for i, got := range losses(t, xla.Train.Out) {
			if relative(got, want[i]) > 1e-4 {
				t.Errorf("%d devices: the loss of step %d is %v, want %v", count, i+1, got, want[i])
			}
		}
		inParts(t, xla, 5, 14)
	}
}

// TestPhaseThatFails: where the first step of a phase fails, no checkpoint has the state of that phase under the number of a step
// before it, and the run can be resumed.
func TestPhaseThatFails(t *testing.T) {
	set := []string{`quantizer={plugin="lsq"}`, `train.nan_policy="stop"`}
	plain := poisoned(t, 1, set...)[0]
	failing(t, testrun.Again(t, plain))
	from := newest(t, plain) + 1
	if from < 4 {
		t.Fatalf("step %d fails, which has a checkpoint before it anyway", from)
	}
	runs := poisoned(t, 2, append(set, overrides(fmt.Sprintf(`from=%d, plugin="absmax"`, from)))...)
	err := failing(t, testrun.Again(t, runs[0]))
	if !errors.Is(err, train.ErrNotFinite) || !strings.Contains(err.Error(), "the newest checkpoint is of step 2") || newest(t, runs[0]) != 2 {
		t.Errorf("the newest checkpoint is of step %d: %v", newest(t, runs[0]), err)
	}
	for _, run := range runs {
		testrun.Train(t, testrun.Again(t, run, `train.nan_policy="skip"`, "train.max_skipped=20"), train.Options{Resume: true})
	}
	testrun.SameRun(t, "stopped in the first step of a phase and not", runs[0].Train.Out, runs[1].Train.Out)
}

// TestPhasesOfConversations: how many steps there are is known only from the data, and what cannot be made right with several
// phases is refused then.
func TestPhasesOfConversations(t *testing.T) {
	cfg := testrun.ChatConfig(t, `quantizer={plugin="none"}`, `quantizer.weights={plugin="quest"}`, `method={name="lotion"}`, overrides(`from=2, role="weights", plugin="absmax"`))
	_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), `method.name: found the string "lotion" beside overrides with from or to`) {
		t.Errorf("%v", err)
	}
}
