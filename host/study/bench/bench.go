// Package bench measures training steps, and the peaks of the processor. Variants are timed in
// turn, A B C A B C …, so that other load on the machine disturbs all of them alike, and the
// ratios of steps are computed within each round.
package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/resources"
)

// Report is the result of a step benchmark.
type Report struct {
	Build      engine.BuildInfo `json:"build"`
	Parameters int              `json:"parameters"`
	Tokens     int              `json:"tokens_per_step"`
	FLOPs      float64          `json:"flops_per_step"`
	// PluginStart and PluginPrograms are the seconds until the plugins had started, and
	// from then until their programs had arrived.
	PluginStart    float64  `json:"plugin_start_seconds"`
	PluginPrograms float64  `json:"plugin_handover_seconds"`
	Steps          []Timing `json:"steps"`
	// Seconds is the median time of the configured step: with the correction, if it has one.
	Seconds       float64 `json:"seconds"`
	FirstStepUnix float64 `json:"first_step_unix"` // when the first step was done
	PeakMemory    int64   `json:"peak_memory_bytes"`
	// PeakFLOPS are the floating-point operations per second of a large matrix product on this
	// device, one on each of its replicas.
	PeakFLOPS float64 `json:"peak_flops"`
}

// Names of the steps of [Run].
const (
	Plain    = "plugins"        // the configured step, λ_t = 0
	WithCAGE = "plugins + CAGE" // the same with λ_t > 0
)

// Timing is the measurements of one step.
type Timing struct {
	Name string `json:"name"`
	// Seconds is the median time of a step, over the rounds after the warm-up.
	Seconds float64 `json:"seconds"`
	// Mean is the mean time. It counts if some steps do more than others, such as those
	// that refresh preconditioners.
	Mean float64   `json:"mean_seconds"`
	All  []float64 `json:"all_seconds"` // of the rounds that count
	// Ratio is the median over the rounds of this step's time divided by
	// the first one's; Low and High are the quartiles.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low_quartile"`
	High  float64 `json:"ratio_high_quartile"`
	// CPU is the median of the processor time of a step, over all threads together, and
	// CPURatio its median ratio to the first step's. Other load on the machine hardly
	// affects them. They are 0 if the system does not report it.
	CPU      float64 `json:"cpu_seconds"`
	CPURatio float64 `json:"cpu_ratio"`
	// Compile is how long compiling and the first step took.
	Compile float64 `json:"first_step_seconds"`
	// Loss is the loss of the last step, to check that variants compute the same.
	Loss float64 `json:"loss"`

	cpu       []float64
	firstDone time.Time
}

// Options say what to measure.
type Options struct {
	Rounds  int
	Alone   bool // the configured step only
	Finder  *plugin.Finder
	Plugins plugin.Options
}

// Run measures the configured step without and with the correction, on random tokens.
// It refuses models other than language models with a known vocabulary.
func Run(ctx context.Context, cfg *config.Config, o Options) (*Report, error) {
	if !cfg.Model.Language() {
		return nil, cfg.ErrorAt("model.kind", "a benchmark is of a language model, not of a problem without data")
	}
	if cfg.Data.Separate() {
		return nil, cfg.ErrorAt("data", "a benchmark has no documents: its tokens are random, and joined")
	}
	if cfg.Model.Vocab == 0 {
		return nil, cfg.ErrorAt("model.vocab", "a benchmark needs the size of the vocabulary")
	}
	m, err := build.Model(cfg)
	if err != nil {
		return nil, err
	}
	programs, err := build.Collect(ctx, build.Request{
		Config: cfg, Model: m, Batch: build.ReplicaBatch(cfg), Finder: o.Finder, Options: o.Plugins,
	})
	if err != nil {
		return nil, err
	}
	if err := build.CheckMemory(cfg, m, programs); err != nil {
		return nil, err
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		return nil, err
	}
	var warn func(string, ...any)
	if o.Plugins.Logger != nil {
		warn = o.Plugins.Logger.Warn
	}
	dev, err := build.Device(cfg, warn)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	isCAGE := cfg.Method.Name == cage.NameCAGE
	correctable := isCAGE || cfg.Method.Name == cage.NameOff
	if correctable { // rules without a method get the correction, which acts where λ_t > 0
		plan.Rules = slices.Clone(plan.Rules)
		for i, r := range plan.Rules {
			if r.Quantizer != nil && (r.Method == nil || len(r.Method.Modes()) == 0) {
				plan.Rules[i].Method = cage.Default
			}
		}
	}
	list, configured := []variant{{Plain, plan, 0}}, 0
	if correctable && len(plan.Weights) > 0 {
		list = append(list, variant{WithCAGE, plan, cfg.Method.CAGE.Lambda})
		if isCAGE && cfg.Method.CAGE.Form != cage.Off {
			configured = 1
		}
	}
	if o.Alone {
		list, configured = list[configured:configured+1], 0
	}
	timings, err := timeInTurn(ctx, dev, list, cfg.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	peak, err := peakFLOPS(dev)
	if err != nil {
		return nil, err
	}
	return &Report{
		Build: dev.BuildInfo(), Parameters: architecture.CountParams(m.Params(), nil),
		Tokens:      cfg.Train.Batch * cfg.Model.Context * cfg.Train.Accumulate,
		FLOPs:       m.StepFLOPs(cfg.Train.Batch, cfg.Model.Context) * float64(cfg.Train.Accumulate),
		PluginStart: programs.Start.Seconds(), PluginPrograms: programs.Handover.Seconds(),
		Steps: timings, Seconds: timings[configured].Seconds,
		FirstStepUnix: float64(timings[0].firstDone.UnixNano()) / 1e9,
		PeakMemory:    resources.PeakMemory(),
		PeakFLOPS:     peak * float64(dev.Count()),
	}, nil
}

// variant is a step to be measured beside others.
type variant struct {
	name   string
	plan   step.Plan
	lambda float64 // λ_t of every step; 0 runs without correction
}

// timeInTurn compiles the variants, and runs rounds of one step of each. A quarter of the rounds,
// at least two, warm up and do not count. All start from the same parameters and see the same
// tokens.
func timeInTurn(
	ctx context.Context, dev *engine.Device, list []variant, vocab, rounds int,
) ([]Timing, error) {
	compiled, states := make([]*step.Compiled, len(list)), make([]*step.State, len(list))
	timings := make([]Timing, len(list))
	for i, v := range list {
		c, err := step.Compile(dev, v.plan)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		defer c.Close()
		if d := c.Plan().Distillation; d != nil { // its teacher gets random parameters
			params := map[string]architecture.Param{}
			for _, p := range d.Teacher.Params() {
				params[p.Name] = p
			}
			err := c.LoadTeacher(step.LoadParams(d.Teacher, func(name string) ([]float32, error) {
				return params[name].Init(0), nil
			}))
			if err != nil {
				return nil, err
			}
		}
		state, err := c.NewState(0, tokens(c, vocab))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		defer state.Close()
		compiled[i], states[i], timings[i].Name = c, state, v.name
	}
	warmUp := max(2, rounds/4)
	for round := range warmUp + rounds {
		for i, v := range list {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			wall, cpu, loss, err := timeStep(compiled[i], states[i], v.lambda, vocab, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			t := &timings[i]
			switch {
			case round == 0:
				t.Compile, t.firstDone = wall, time.Now()
			case round >= warmUp:
				t.All, t.cpu = append(t.All, wall), append(t.cpu, cpu)
			}
			t.Loss = loss
		}
	}
	for i := range timings {
		summarize(&timings[i], &timings[0])
	}
	return timings, nil
}

// tokens are a batch of random ids, the same at each call.
func tokens(c *step.Compiled, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(0, 0))
	ids := make([]int32, c.Batch()*(c.Plan().Context+1))
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

// timeStep times a step in seconds. Collecting garbage is not part of it, as it would hit
// whichever variant comes next.
func timeStep(
	c *step.Compiled, state *step.State, lambda float64, vocab, round int,
) (wall, cpu, loss float64, err error) {
	batches := make([][]int32, c.Plan().Accumulate)
	for i := range batches {
		batches[i] = tokens(c, vocab)
	}
	runtime.GC()
	began, used := time.Now(), resources.ProcessorTime()
	res, err := c.Step(state, batches, step.Settings{
		Step: round + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: lambda,
	})
	wall, cpu = time.Since(began).Seconds(), (resources.ProcessorTime() - used).Seconds()
	if err == nil && res.Skipped {
		err = fmt.Errorf("step %d is not finite", round+1)
	}
	return wall, cpu, res.Loss, err
}

func summarize(t, first *Timing) {
	wall := ratios(t.All, first.All)
	t.Seconds, t.Mean = quantile(t.All, 0.5), stat.Mean(t.All, nil)
	t.Ratio, t.Low, t.High = quantile(wall, 0.5), quantile(wall, 0.25), quantile(wall, 0.75)
	t.CPU, t.CPURatio = quantile(t.cpu, 0.5), quantile(ratios(t.cpu, first.cpu), 0.5)
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, 0, len(a))
	for i := range a {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

func quantile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// peakFLOPS measures the speed of a product of two large matrices in the device's
// precision, the best of a few. A GPU needs larger ones before their product takes
// longer than its start.
func peakFLOPS(dev *engine.Device) (float64, error) {
	const tries = 6
	n := 1536
	if dev.Kind() != device.CPU {
		n = 8192
	}
	shape := shapes.Make(dtypes.Float32, n, n)
	product, err := dev.Compile("peak", []engine.Spec{{Name: "a", Shape: shape}, {Name: "b", Shape: shape}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			y := engine.DotGeneral(in[0], []int{1}, nil, in[1], []int{0}, nil)
			return []*graph.Node{graph.ReduceAllSum(y)}
		})
	if err != nil {
		return 0, err
	}
	defer product.Close()
	// Not all alike: a GPU is faster on numbers whose bits do not change.
	values := floats(n * n)
	var in [2]*engine.Buffer
	for i := range in {
		if in[i], err = engine.Upload(dev, values, n, n); err != nil {
			return 0, err
		}
		defer in[i].Finalize()
	}
	best := math.Inf(1)
	for range tries {
		began := time.Now()
		out, err := product.Run(in[:], nil)
		if err != nil {
			return 0, err
		}
		_, err = engine.Scalar[float32](out[0]) // waits for the device
		engine.FinalizeAll(out...)
		if err != nil {
			return 0, err
		}
		best = min(best, time.Since(began).Seconds())
	}
	return 2 * math.Pow(float64(n), 3) / best, nil
}
