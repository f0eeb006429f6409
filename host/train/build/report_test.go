package build_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

// small is what a small run needs.
var small = []build.Part{{What: "the program itself", Bytes: 75e6}, {What: "values", Bytes: 2e9},
	{What: "nothing"}, {What: "states", Bytes: 60e6}}

func total(parts []build.Part) (sum float64) {
	for _, p := range parts {
		sum += p.Bytes
	}
	return sum
}

// TestReportErr checks that a run that does not fit is refused, with advice.
func TestReportErr(t *testing.T) {
	for name, c := range map[string]struct {
		overrides []string
		forward   bool
		less      []string
	}{
		"on the CPU": {nil, false, []string{"train.batch", `train.recompute = "blocks"`, "model.context",
			"diagnostics", "smaller model"}},
		"on GPUs": {[]string{`device.kind="cuda"`, "device.count=2"}, false,
			[]string{"train.batch", `device.shard = "full"`, "device.memory_fraction"}},
		"forward": {nil, true, []string{"--batch, if the command has it"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(c.overrides, "diagnostics.every=5")...)
			report := func(available int64) *build.Report {
				return build.NewReport(build.ByPlan, small,
					&build.Available{Bytes: available, Limit: "of a test"}, build.Remedies(cfg, c.forward))
			}
			need := int64(total(small))
			if err := report(need).Err(); err != nil {
				t.Errorf("refused what fits: %v", err)
			}
			err := report(need / 2).Err()
			for _, part := range append(c.less, "are available (of a test)\n", "\nto use less memory: ") {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
		})
	}
}

// TestReport checks the sum and the order of the parts, and that Fits agrees with Err.
func TestReport(t *testing.T) {
	all := total(small)
	for _, available := range []*build.Available{nil, {Bytes: int64(all)}, {Bytes: int64(all / 2)}} {
		r := build.NewReport(build.ByPlan, small, available, nil)
		if want := r.Err() == nil; r.Fits != want || r.Bytes != all || r.Available != available {
			t.Errorf("%+v, want %g bytes and fits %v", r, all, want)
		}
		sum := 0.0
		for _, p := range r.Parts {
			sum += p.Bytes
		}
		if math.Abs(sum-all) > 1e-9*all {
			t.Errorf("the parts are %g bytes, want %g", sum, all)
		}
		if !slices.IsSortedFunc(r.Parts, func(a, b build.Part) int { return int(b.Bytes - a.Bytes) }) {
			t.Errorf("not the largest first: %v", r.Parts)
		}
	}
}

// TestCheckWithoutMachine checks that without information about the machine, a run is refused only
// if no machine has enough memory.
func TestCheckWithoutMachine(t *testing.T) {
	if err := build.NewReport(build.ByPlan, small, nil, nil).Err(); err != nil {
		t.Error(err)
	}
	huge := append(small, build.Part{What: "more", Bytes: 1e15})
	if err := build.NewReport(build.ByPlan, huge, nil, nil).Err(); err == nil {
		t.Error("a petabyte was not refused")
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234567: "1.23 MB",
		62.4e12: "62.4 TB", 1e30: "1e+06 YB",
		999.6: "1 kB", 999.4e6: "999 MB", 999.7e6: "1 GB", 999.99e9: "1 TB"} {
		if got := build.Bytes(n); got != want {
			t.Errorf("%g: %q, want %q", n, got, want)
		}
	}
}

// TestOf checks that the least of the machine's free memory and its cgroup limits is used.
func TestOf(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 " +
		"kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  build.Available
		ok    bool
	}{
		"a system that does not tell": {nil, build.Available{}, false},
		"no control group": {map[string]string{"proc/meminfo": meminfo},
			build.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"version 2, in a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4294967296\n", "sys/fs/cgroup/memory.current": "3221225472\n",
			"sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 2147483648\n",
		}, build.Available{Bytes: 3 * gib, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"version 2, the limit is above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/slurm/job\n",
			"sys/fs/cgroup/slurm/job/memory.max": "max\n", "sys/fs/cgroup/slurm/job/memory.current": "0\n",
			"sys/fs/cgroup/slurm/memory.max": "1073741824\n", "sys/fs/cgroup/slurm/memory.current": "0\n",
		}, build.Available{Bytes: gib, Limit: "limit of the control group sys/fs/cgroup/slurm"}, true},
		"version 2, without a limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job\n",
			"sys/fs/cgroup/job/memory.max": "max\n",
		}, build.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"more in use than allowed": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "200\n",
		}, build.Available{Bytes: 0, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"not numbers": {map[string]string{"proc/meminfo": "MemAvailable: x kB\n",
			"proc/self/cgroup": "0::\nnonsense\n"}, build.Available{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, content := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(content)}
			}
			got, ok := build.AvailableIn(root)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestRecomputeAuto checks that "auto" chooses the least recomputation that fits, and that its
// memory is returned unless it was not determined.
func TestRecomputeAuto(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `train.recompute="auto"`)
	m := modelOf(t, cfg)
	programs, err := build.Collect(t.Context(),
		build.Request{Config: cfg, Model: m, Batch: cfg.Train.Batch, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	need := map[architecture.Recompute]int64{}
	for _, recompute := range []architecture.Recompute{architecture.RecomputeNone,
		architecture.RecomputeAttention} {
		again := testrun.Again(t, cfg, fmt.Sprintf("train.recompute=%q", recompute))
		report, err := build.EstimateOf(again, modelOf(t, again), programs, nil)
		if err != nil {
			t.Fatal(err)
		}
		need[recompute] = int64(report.Bytes)
	}
	for _, tt := range []struct {
		available *build.Available
		want      architecture.Recompute
	}{
		{nil, architecture.RecomputeNone},
		{&build.Available{Bytes: need[architecture.RecomputeNone] + 1}, architecture.RecomputeNone},
		{&build.Available{Bytes: need[architecture.RecomputeNone] - 1}, architecture.RecomputeAttention},
		{&build.Available{Bytes: need[architecture.RecomputeAttention] - 1},
			architecture.RecomputeBlocks},
		{&build.Available{Bytes: 1}, architecture.RecomputeBlocks},
	} {
		decided, _, report, err := build.Decide(cfg, m, programs,
			func(cfg *config.Config, m model.Model) (*build.Report, error) {
				return build.EstimateOf(cfg, m, programs, tt.available)
			})
		if err != nil {
			t.Fatal(err)
		}
		need, determined := need[tt.want]
		if (report != nil) != determined || report != nil && int64(report.Bytes) != need {
			t.Errorf("with %v: the memory of %q is %+v, want %d bytes", tt.available, tt.want, report, need)
		}
		if decided.Train.Recompute != tt.want || cfg.Train.Recompute != config.RecomputeAuto {
			t.Errorf("with %v: %q, want %q", tt.available, decided.Train.Recompute, tt.want)
		}
	}
}

// TestTeacherInMemory checks that the parameters of the teacher are counted in a training, but not
// in an evaluation, which does not load it.
func TestTeacherInMemory(t *testing.T) {
	text := func(more string) *config.Config {
		return testrun.Parse(t, "model = {layers = 1, width = 32, heads = 2, hidden = 48, context = 16, "+
			"vocab = 328}\ndata = {train = \"a\", validation = \"b\"}\nschedule = {rate = 1e-3}\n"+
			"train = {steps = 1, batch = 1"+more+"}\n")
	}
	taught := text(`, distillation = {teacher = "../../model/huggingface/testdata/llama32"}`)
	for _, forward := range []bool{false, true} {
		var bytes []float64
		for _, cfg := range []*config.Config{text(""), taught} {
			m := modelOf(t, cfg)
			programs, err := build.Collect(t.Context(), build.Request{Config: cfg, Model: m,
				Batch: cfg.Train.Batch, Forward: forward, Finder: testrun.Finder(t)})
			if err != nil {
				t.Fatal(err)
			}
			r, err := build.EstimateOf(cfg, m, programs, nil)
			if err != nil {
				t.Fatal(err)
			}
			bytes = append(bytes, r.Bytes)
		}
		const teacher = 4 * 82752 // bytes of its parameters
		if more := bytes[1] - bytes[0]; forward && more != 0 || !forward && more < teacher {
			t.Errorf("forward %v: %g bytes more with a teacher of %d", forward, more, teacher)
		}
	}
}

// TestEvaluationRecomputesNothing checks that "auto" means no recomputation in an evaluation, and
// that its memory is not determined for this: on a GPU, that would compile a training step.
func TestEvaluationRecomputesNothing(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=32", `train.recompute="auto"`)
	decided, m, _, err := build.Decide(cfg, modelOf(t, cfg), &build.Programs{Forward: true},
		func(*config.Config, model.Model) (*build.Report, error) {
			return nil, errors.New("the memory of an evaluation was determined")
		})
	if err != nil || m == nil || decided.Train.Recompute != architecture.RecomputeNone {
		t.Errorf("%+v, %v", decided, err)
	}
}
