package train

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/spec"
)

func runOf(t *testing.T, overrides ...string) *run {
	t.Helper()
	cfg, err := config.Parse("test.toml", []byte(`
model     = { layers = 1, width = 32, heads = 2, hidden = 32, context = 16, vocab = 40 }
data      = { train = "a", validation = "b" }
train     = { steps = 100, batch = 4, weight_decay = 0.2 }
schedule  = { rate = 0.5, floor = 0.25 }
quantizer = { plugin = "quest" }
`), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return &run{cfg: cfg, rates: cfg.Schedule.Schedule(cfg.Train.Steps), method: cfg.ResolvedMethod(),
		Programs: &build.Programs{Weights: map[string]spec.Quantizer{"w": {}}}}
}

// agreement is two processes of which one has the values of the first call.
type agreement struct {
	Processes
	first map[string]int64
}

func (a agreement) Agree(name string, value int64) ([]int64, error) {
	if _, ok := a.first[name]; !ok {
		a.first[name] = value
	}
	return []int64{a.first[name], value}, nil
}

// TestSameRecompute checks that processes that have resolved train.recompute = "auto" differently
// cannot train together.
func TestSameRecompute(t *testing.T) {
	r := runOf(t, `train.recompute="auto"`)
	r.opts.Processes = agreement{first: map[string]int64{}}
	r.Device = testdevice.OpenCPU(t, engine.Options{})
	for _, r.Recompute = range []architecture.Recompute{"none", "none", "blocks"} {
		err := r.sameRuntime()
		if same := r.Recompute == "none"; (err == nil) != same ||
			!same && !strings.Contains(err.Error(), "train.recompute") {
			t.Errorf("none and %s: %v", r.Recompute, err)
		}
	}
}

// TestSettings checks that schedules count all steps, and the optimizer only its updates.
func TestSettings(t *testing.T) {
	r := runOf(t, "method.lambda=2.0")
	r.done = provenance.Progress{Step: 94, Skipped: 3}
	s := r.settings(95)
	if s.Step != 92 {
		t.Errorf("the optimizer's step is %d after 94 steps of which 3 were skipped, want 92", s.Step)
	}
	if s.Rate != r.rates.Rate(94) || s.NextRate != r.rates.Rate(95) || s.Rate <= s.NextRate {
		t.Errorf("the rates are %v and %v, want those of the 95th and the next step", s.Rate, s.NextRate)
	}
	if math.Abs(s.Lambda-1) > 1e-12 || s.ParetoLambda != 2 {
		t.Errorf("λ_t is %v, want half of 2 halfway up the ramp; λ %v", s.Lambda, s.ParetoLambda)
	}
	r.Programs = &build.Programs{}
	if s := r.settings(95); s.Lambda != 0 {
		t.Errorf("without a quantized weight λ_t is %v, want 0", s.Lambda)
	}
}

// TestScheduleFloor checks that floor is the fraction of the peak rate at the end, for every kind.
func TestScheduleFloor(t *testing.T) {
	for _, kind := range []string{"onecycle_cos", "linear_warmup_cosine", "cosine", "linear", "wsd"} {
		for floor, text := range map[float64]string{0.25: "schedule.floor=0.25",
			0: "schedule.floor=0.0"} {
			rates := runOf(t, `schedule.kind="`+kind+`"`, text).rates
			low, high := math.Inf(1), 0.0
			for k := 50; k < 101; k++ {
				low, high = min(low, rates.Rate(k)), max(high, rates.Rate(k))
			}
			if math.Abs(low-0.5*floor) > 1e-4 || high > 0.5 {
				t.Errorf("%s with floor %v: the second half has rates from %v to %v, want the least to be %v",
					kind, floor, low, high, 0.5*floor)
			}
		}
	}
}

func TestDue(t *testing.T) {
	r := runOf(t, "train.log_every=30", "train.eval_every=40", "method.pareto_every=45")
	r.Programs = &build.Programs{} // without quantized weights
	var logged, evaluated []int
	for step := range 101 {
		if step > 0 && r.logs(step) {
			logged = append(logged, step)
		}
		if r.evaluates(step) {
			evaluated = append(evaluated, step)
		}
	}
	if want := []int{1, 30, 60, 90, 100}; !slices.Equal(logged, want) {
		t.Errorf("without quantized weights logged are %v, want %v", logged, want)
	}
	if want := []int{40, 80}; !slices.Equal(evaluated, want) {
		t.Errorf("evaluated are %v, want %v", evaluated, want)
	}
}

// TestUncorrectedWeightsAreCounted checks that every omitted correction is counted, also in
// records, and that the weights are logged once while they stay the same.
func TestUncorrectedWeightsAreCounted(t *testing.T) {
	var said strings.Builder
	r := runOf(t)
	r.log = hclog.New(&hclog.LoggerOptions{Output: &said})
	two := []string{"layers.0.attn.out", "layers.1.mlp.w1"}
	for _, list := range [][]string{nil, two, two, two[:1], nil} {
		r.countUncorrected(step.Result{Uncorrected: list})
	}
	if r.done.Uncorrected != 5 {
		t.Errorf("%d corrections are counted, want 5", r.done.Uncorrected)
	}
	if got := strings.Count(said.String(), "\n"); got != 2 ||
		!strings.Contains(said.String(), "layers.1.mlp.w1") {
		t.Errorf("%d warnings, want 2 that name the weights:\n%s", got, said.String())
	}
	rec := metrics.Record{Lambda: metrics.Some(1)}
	res := step.Result{ErrorNorm2: []float64{1, math.NaN(), 3, 4}, ValueNorm2: []float64{1, 1, 1, 1},
		Uncorrected: two}
	addStatistics(&rec, step.Settings{Lambda: 1}, res)
	if *rec.AppliedParams != 2 || float64(*rec.ErrorNorm2) != 8 {
		t.Errorf("applied to %d weights, Σ‖e‖² %v; want 2 and 8", *rec.AppliedParams, *rec.ErrorNorm2)
	}
}

// TestFailuresOfOneTensor checks that a checkpoint stores how often the refreshes of a tensor have
// failed in a row, even if it is the only such tensor. Otherwise a run that is resumed again and
// again would never end with the error about it.
func TestFailuresOfOneTensor(t *testing.T) {
	for _, want := range []map[string]int{nil, {"layers.1.mlp.down": 3},
		{"embedding": 1, "layers.1.mlp.down": 2}} {
		r := &run{state: &step.State{}}
		r.state.Pending.Failures = want
		saved := checkpoint.State{Meta: checkpoint.Meta{}}
		failures := r.state.Pending.Failures
		if err := setIf(&saved, failuresKey, failures, len(failures) > 0); err != nil {
			t.Fatal(err)
		}
		var got map[string]int
		if err := saved.Meta.GetIf(failuresKey, &got); err != nil || !maps.Equal(got, want) {
			t.Errorf("saved are %v, %v, want %v", got, err, want)
		}
		if _, some := saved.Meta[failuresKey]; some != (len(want) > 0) {
			t.Errorf("%v: the entry is there: %v", want, some)
		}
	}
}

// fixedNames is a file system in which nothing can be renamed.
type fixedNames struct{ vfs.FS }

func (fixedNames) Rename(string, string) error { return fs.ErrPermission }

// TestSummaryThatCannotBeRenamed checks that the log does not say that a damaged summary was
// renamed if that has failed.
func TestSummaryThatCannotBeRenamed(t *testing.T) {
	var said strings.Builder
	r := runOf(t)
	r.log = hclog.New(&hclog.LoggerOptions{Output: &said})
	r.dir = rundir.On(fixedNames{vfs.OS}, t.TempDir())
	if err := os.WriteFile(r.dir.Summary().Name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.reopen(); !errors.Is(err, fs.ErrPermission) || said.Len() > 0 {
		t.Errorf("error %v; the log says %s", err, said.String())
	}
}

var errNoBatch = errors.New("no such batch")

// numbered returns batches of two elements, each the batch's index. Loading the batch with index
// fails returns an error.
func numbered(fails int64) build.Batches {
	return build.Batches{Len: 2,
		At: func(index int64, dst []int32) error {
			if index == fails {
				return errNoBatch
			}
			dst[0], dst[1] = int32(index), int32(index)
			return nil
		},
		Finish: func(batches [][]int32) int64 { return int64(10 * len(batches)) }}
}

// TestFeed checks that every step gets its own batches, and that none are loaded after the last
// step.
func TestFeed(t *testing.T) {
	loaded := make(chan [][]int32, 9)
	load := func(b [][]int32) (*step.Batches, error) {
		loaded <- b
		return &step.Batches{}, nil
	}
	f := startFeed(numbered(-1), 2, load, 4, 6)
	for at := 4; at <= 6; at++ {
		if d := <-f.deliveries; d.err != nil || d.targets != 20 {
			t.Fatalf("%d targets, %v", d.targets, d.err)
		}
		first := int32(2 * (at - 1))
		if got := <-loaded; got[0][0] != first || got[1][0] != first+1 {
			t.Errorf("step %d has the batches %v, want %d and the next", at, got, first)
		}
	}
	f.close()
	if len(loaded) > 0 {
		t.Errorf("after the last step %v was loaded", <-loaded)
	}
}

// TestFeedFails checks that an error is delivered with the step that it belongs to.
func TestFeedFails(t *testing.T) {
	load := func([][]int32) (*step.Batches, error) { return &step.Batches{}, nil }
	f := startFeed(numbered(2), 1, load, 1, 9)
	defer f.close()
	for at := 1; at <= 3; at++ {
		if d := <-f.deliveries; errors.Is(d.err, errNoBatch) != (at == 3) {
			t.Errorf("step %d: %v", at, d.err)
		}
	}
}

// TestFeedCloses checks that a feed that is closed early loads only what it has begun.
func TestFeedCloses(t *testing.T) {
	var loaded atomic.Int32
	load := func([][]int32) (*step.Batches, error) {
		loaded.Add(1)
		return &step.Batches{}, nil
	}
	f := startFeed(numbered(-1), 1, load, 1, 9)
	<-f.deliveries
	f.close()
	if n := loaded.Load(); n > 3 {
		t.Errorf("the batches of %d steps were loaded, and one step was done", n)
	}
}

// RunSeen is like Run, but calls see with the state before the first step.
func RunSeen(
	ctx context.Context, cfg *config.Config, o Options, see func(*step.State),
) (*metrics.Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, opts: o, log: o.Logger, dir: rundir.On(o.Files, cfg.Train.Out)}
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	see(r.state)
	return r.train(ctx)
}
