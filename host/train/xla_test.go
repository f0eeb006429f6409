package train_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
)

// onXLA makes XLA on the given number of processors the device of kind "cuda".
func onXLA(t *testing.T, count int) *pjrtrecord.Recorder {
	t.Helper()
	plugin, recorder := pjrtrecord.XLA(t, count)
	t.Setenv(engine.PluginPathVariable, plugin)
	return recorder
}

// onCUDA returns a copy of a configuration with its own directory, for that device.
func onCUDA(t *testing.T, cfg *config.Config, count int, overrides ...string) *config.Config {
	t.Helper()
	return testrun.Elsewhere(t, cfg,
		append([]string{`device.kind="cuda"`, fmt.Sprint("device.count=", count)}, overrides...)...)
}

// TestXLA checks that XLA trains like the CPU device, on one device and on several, and with as
// many sequences in micro-batches. Sums are taken in another order: as in TestAccumulation, losses
// agree to 1e-5.
//
// In full precision losses differ by 2e-7. In a quantized run a weight within such a difference of
// the middle between two codes may get the other code. Then losses differ by 2e-5, as with one
// layer in step 12. With two layers no weight is there.
func TestXLA(t *testing.T) {
	onXLA(t, 4)
	cpu := testrun.Config(t, testrun.TwoLayers, "train.final_eval_batches=0")
	finalWant := testrun.Train(t, cpu, train.Options{}).ValLoss
	want := losses(t, cpu.Train.Out)
	for name, c := range map[string]struct {
		count     int
		overrides []string
	}{
		"one":                {count: 1},
		"two":                {count: 2},
		"four":               {count: 4},
		"two, micro-batches": {2, []string{"train.batch=2", "train.accumulate=2"}},
		"two, states":        {2, []string{`device.shard="states"`}},
		"four, full":         {4, []string{`device.shard="full"`}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := onCUDA(t, cpu, c.count, c.overrides...)
			final := testrun.Train(t, cfg, train.Options{}).ValLoss
			got := losses(t, cfg.Train.Out)
			if len(got) != len(want) {
				t.Fatalf("%d losses, want %d", len(got), len(want))
			}
			for i := range got {
				if !(relative(got[i], want[i]) < 1e-5) {
					t.Errorf("loss of step %d is %v, want %v", i+1, got[i], want[i])
				}
			}
			if !(relative(float64(*final), float64(*finalWant)) < 1e-5) {
				t.Errorf("the final loss is %v, want %v", *final, *finalWant)
			}
		})
	}
}

// TestXLAAdapters checks that adapters train on XLA as on the CPU, on one device and on two.
func TestXLAAdapters(t *testing.T) {
	onXLA(t, 2)
	cpu, _ := testrun.FromHub(t, "adapters.rank=2", "train.steps=6", "schedule.rate=0.01",
		`quantizer.plugin="quest"`,
		"quantizer.bits=4", "method.strength=1")
	testrun.Train(t, cpu, train.Options{})
	want := losses(t, cpu.Train.Out)
	for _, count := range []int{1, 2} {
		cfg := onCUDA(t, cpu, count)
		testrun.Train(t, cfg, train.Options{})
		for i, got := range losses(t, cfg.Train.Out) {
			if !(relative(got, want[i]) < 1e-5) {
				t.Errorf("%d devices: the loss of step %d is %v, want %v", count, i+1, got, want[i])
			}
		}
	}
}

// TestXLAResumes checks that a resumed run on XLA gives the same bits.
func TestXLAResumes(t *testing.T) {
	onXLA(t, 2)
	whole := onCUDA(t, testrun.Config(t), 2)
	testrun.Train(t, whole, train.Options{})
	inParts(t, whole, 3, 11)
}

// TestXLAResumesDivided checks that a run with four devices that shard everything can be resumed on
// two that shard less, and on one.
func TestXLAResumesDivided(t *testing.T) {
	onXLA(t, 4)
	cpu := testrun.Config(t, testrun.TwoLayers, "train.final_eval_batches=0")
	testrun.Train(t, cpu, train.Options{})
	parts := onCUDA(t, cpu, 4, `device.shard="full"`)
	for _, next := range []struct {
		stop  int
		count int
		shard string
	}{{5, 4, "full"}, {11, 2, "states"}, {0, 1, "none"}} {
		cfg := testrun.Again(t, parts, fmt.Sprint("device.count=", next.count),
			fmt.Sprintf("device.shard=%q", next.shard))
		_, err := train.Run(t.Context(), cfg,
			train.Options{Resume: true, StopAfter: next.stop, Finder: testrun.Finder(t)})
		if err != nil && !(next.stop > 0 && errors.Is(err, train.ErrInterrupted)) {
			t.Fatal(err)
		}
	}
	want, got := losses(t, cpu.Train.Out), losses(t, parts.Train.Out)
	for i := range want {
		if !(relative(got[i], want[i]) < 1e-5) {
			t.Errorf("loss of step %d is %v, want %v", i+1, got[i], want[i])
		}
	}
}

// TestXLAFaults checks that after any failure of the device, the run ends with an error that names
// its cause and the newest checkpoint, and continues from there as if nothing had failed.
func TestXLAFaults(t *testing.T) {
	recorder := onXLA(t, 2)
	// In the programs of a step and of an evaluation.
	const step, evaluation = "module @step", "module @losses"
	whole := onCUDA(t, testrun.Config(t, "train.steps=10", "train.checkpoint_every=4",
		"train.eval_every=6"), 2)
	testrun.Train(t, whole, train.Options{})
	for name, c := range map[string]struct {
		fault pjrtrecord.Fault
		kept  int // step of the newest checkpoint
		want  []string
	}{
		"compiling": {
			pjrtrecord.Fault{At: pjrtrecord.Compile, Contains: step, Code: pjrtrecord.ResourceExhausted,
				Message: "no room for the step"},
			0, []string{`executable "step`, "compiling", "no room for the step"},
		},
		"running": {
			pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: step, After: 5, Code: pjrtrecord.Internal,
				Message: "an illegal address"},
			4, []string{"step 6", "running", "an illegal address", "failed while replacing the state",
				"newest checkpoint is of step 4"},
		},
		"one of two devices": {
			pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: step, After: 5,
				Message: "device 1 fell off the bus", End: pjrtrecord.LosesDevice},
			4, []string{"step 6", "running", "device 1 fell off the bus", "newest checkpoint is of step 4"},
		},
		"the process ends": {
			pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: step, After: 5, End: pjrtrecord.Dies},
			4, []string{"step 6", "running", "ended by signal 9", "newest checkpoint is of step 4"},
		},
		"evaluating": {
			pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: evaluation,
				Code: pjrtrecord.ResourceExhausted, Message: "no room for the losses"},
			6, []string{"no room for the losses", "The state after step 6 is saved"},
		},
		"the process ends in an evaluation": {
			pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: evaluation, End: pjrtrecord.Dies},
			4, []string{"ended by signal 9", "checkpoint of step 6", "the newest one is of step 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			recorder.Fail(t, c.fault)
			_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
			if err == nil {
				t.Fatal("the run did not fail")
			}
			for _, text := range c.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not say %q: %v", text, err)
				}
			}
			if kept := newest(t, cfg); kept != c.kept {
				t.Errorf("the newest checkpoint is of step %d, want %d", kept, c.kept)
			}
			recorder.Fail(t)
			testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
			testrun.SameRun(t, "without and with a fault", whole.Train.Out, cfg.Train.Out)
		})
	}
}

// TestXLAHangs checks that a step that the device never finishes ends the run, which continues from
// its newest checkpoint as if nothing had failed.
func TestXLAHangs(t *testing.T) {
	recorder := onXLA(t, 2)
	whole := onCUDA(t, testrun.Config(t, "train.steps=10", "train.checkpoint_every=4"), 2)
	testrun.Train(t, whole, train.Options{})
	cfg := testrun.Elsewhere(t, whole, "device.timeout_minutes=0.1")
	recorder.Fail(t, pjrtrecord.Fault{At: pjrtrecord.Execute, Contains: "module @step", After: 5,
		End: pjrtrecord.Hangs})
	_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err == nil {
		t.Fatal("the run did not end")
	}
	for _, text := range []string{"step 6", "has not answered for 6s",
		"newest checkpoint is of step 4"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
	recorder.Fail(t)
	onXLA(t, 2) // with another process of XLA
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	testrun.SameRun(t, "without and with a hang", whole.Train.Out, cfg.Train.Out)
}

// TestXLAWithoutExtensions checks XLA on processors, which has neither fused attention nor kernels,
// like some GPUs. A run in bfloat16 reports each missing kind once and continues without it; a run
// that requires one ends.
func TestXLAWithoutExtensions(t *testing.T) {
	onXLA(t, 1)
	for _, c := range []struct {
		overrides  []string
		kinds      []string
		asks, lack string
	}{
		{nil, []string{"attention with heads of size 16, 128·n + 16 tokens"}, `device.attention="fused"`,
			"fmha"},
		{[]string{`device.attention="plain"`}, []string{string(lower.Rotations), string(lower.Joined),
			string(lower.Norms), string(lower.Losses)}, `device.kernels="fused"`, "xla.gpu.triton"},
	} {
		cfg := onCUDA(t, testrun.Config(t, "train.steps=2", "train.eval_every=0"), 1,
			append(c.overrides, `device.precision="bfloat16"`)...)
		var log bytes.Buffer
		testrun.Train(t, cfg, train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
		for _, kind := range c.kinds {
			if text := log.String(); strings.Count(text,
				"which takes more time and memory: kind=\""+kind) != 1 &&
				strings.Count(text, "which takes more time and memory: kind="+kind) != 1 {
				t.Errorf("the messages do not say once that there are no kernels of the kind %s: %s", kind,
					text)
			}
		}
		refused(t, c.asks, testrun.Elsewhere(t, cfg, c.asks), train.Options{}, c.lack)
	}
}

// TestXLAOptimizers checks that optimizers with state in few bits and second gradients train on XLA
// as on the CPU, on one device and on two, and can be resumed.
func TestXLAOptimizers(t *testing.T) {
	onXLA(t, 2)
	finder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]string{"adam8bit": ", min_size=0", "sam": "",
		"sophia": ", every=3"} {
		t.Run(name, func(t *testing.T) {
			exe, err := finder.Find(t.Context(), filepath.Join("..", "..", "examples", "plugins", name))
			if err != nil {
				t.Fatal(err)
			}
			cpu := testrun.Config(t, testrun.TwoLayers, "train.steps=10", "train.final_eval_batches=0",
				fmt.Sprintf("optimizer={plugin=%q%s}", exe.Path, settings),
				fmt.Sprint("schedule.rate=", exampleOptimizers[name]))
			testrun.Train(t, cpu, train.Options{})
			want := losses(t, cpu.Train.Out)
			for _, count := range []int{1, 2} {
				cfg := onCUDA(t, cpu, count)
				testrun.Train(t, cfg, train.Options{})
				got := losses(t, cfg.Train.Out)
				for i := range want {
					if !(relative(got[i], want[i]) < 1e-3) {
						t.Errorf("%d devices: loss of step %d is %v, want %v", count, i+1, got[i], want[i])
					}
				}
				if count == 2 {
					inParts(t, cfg, 4)
				}
			}
		})
	}
}

// TestXLAMemory checks that the memory that XLA reports for a step is the estimate and decides
// whether a run fits, and that the error of a device without free memory suggests changes.
func TestXLAMemory(t *testing.T) {
	recorder := onXLA(t, 2)
	cpu := testrun.Config(t, "train.steps=2", "train.batch=64", "train.accumulate=2",
		"train.eval_every=0")
	cfg := onCUDA(t, cpu, 1)
	estimate := func(cfg *config.Config) *build.Report {
		t.Helper()
		report, err := train.EstimateMemory(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	report := estimate(cfg)
	pinned, err := build.PinnedToData(cfg) // with the vocabulary
	if err != nil {
		t.Fatal(err)
	}
	// in float32, with the two moments of AdamW
	state := 4 * 3 * float64(architecture.CountParams(pinned.Model.Params(), nil))
	if report.By != build.ByXLA || report.Seconds <= 0 || report.Accuracy != 0 ||
		report.Available != nil || !report.Fits || report.Bytes < 2*state {
		t.Errorf("of a device that does not tell what it has: %+v", report)
	}
	for _, p := range report.Parts {
		if strings.HasPrefix(p.What, "parameters, and states") &&
			!(p.Bytes >= state && p.Bytes < 1.1*state) {
			t.Errorf("%s, want %s", p, build.Bytes(state))
		}
	}
	if two := estimate(onCUDA(t, cpu, 2)); two.By != build.ByXLA || !(two.Bytes < report.Bytes) {
		t.Errorf("two GPUs need %g bytes each, one %g", two.Bytes, report.Bytes)
	}
	recorder.Memory(t, int64(report.Bytes))
	if enough := estimate(cfg); !enough.Fits || enough.Available == nil || len(enough.Changes) > 0 {
		t.Errorf("as much as it needs: %+v", enough)
	}
	const tooLittle = 0.6
	recorder.Memory(t, int64(tooLittle*report.Bytes))
	if little := estimate(cfg); little.Fits || len(little.Changes) == 0 {
		t.Errorf("less than it needs: %+v", little)
	}
	refused(t, "too little", cfg, train.Options{}, "of memory on each GPU",
		"device.memory_fraction = 0.75 of each GPU", "to use less memory: ", `train.memory_check = "off"`)
	recorder.Memory(t, int64(2*report.Bytes))
	for at, event := range map[string]pjrtrecord.Fault{
		"a step":    {At: pjrtrecord.Execute, Contains: "module @step", After: 1},
		"an upload": {At: pjrtrecord.Upload, After: 1},
		"compiling": {At: pjrtrecord.Compile, Contains: "module @step"},
	} {
		t.Run(at, func(t *testing.T) {
			event.Code, event.Message = pjrtrecord.ResourceExhausted,
				"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567 bytes."
			recorder.Fail(t, event)
			defer recorder.Fail(t)
			says := []string{"allocate 1234567 bytes", "train.batch", `train.recompute = "blocks"`,
				"device.memory_fraction"}
			if at != "compiling" { // earlier, the need of the run is unknown
				says = append(says, "the GPU is out of memory; the run needs",
					"are available (device.memory_fraction")
			}
			refused(t, at, testrun.Elsewhere(t, cfg), train.Options{}, says...)
		})
	}
}
