// Package bench measures training steps. Variants are timed in turn, A B C A B C …, so that other
// load on the machine affects all of them alike, and ratios of step times are computed within each
// round.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/resources"
)

// Report is the result of a step benchmark.
type Report struct {
	Build      engine.BuildInfo `json:"build"`
	Parameters int              `json:"parameters"`
	Tokens     int              `json:"tokens_per_step"`
	FLOPs      float64          `json:"flops_per_step"`
	Steps      []Timing         `json:"steps"`
	// Seconds is the median time of the configured step (with the correction if it is configured).
	Seconds    float64 `json:"seconds"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

// Names of the steps that [Run] times.
const (
	Plain    = "plugins"        // the configured step, λ_t = 0
	WithCAGE = "plugins + CAGE" // the same step with λ_t > 0
)

// Timing holds the measurements of one step.
type Timing struct {
	Name string `json:"name"`
	// Seconds is the median time of a step, over the rounds after the warm-up.
	Seconds float64 `json:"seconds"`
	// Mean is the mean time. It matters if some steps do more work than others, such as those that
	// refresh preconditioners.
	Mean float64   `json:"mean_seconds"`
	All  []float64 `json:"all_seconds"` // one for each round after the warm-up
	// Ratio is the median, over the rounds, of this step's time divided by the first step's; Low and
	// High are the quartiles.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low_quartile"`
	High  float64 `json:"ratio_high_quartile"`
	// CPU is the median processor time of a step, summed over all threads, and CPURatio the median of
	// its ratio to the first step's. Other load on the machine hardly affects them. They are 0 if the
	// system does not report processor times.
	CPU      float64 `json:"cpu_seconds"`
	CPURatio float64 `json:"cpu_ratio"`
	// Compile is the time of compilation and the first step.
	Compile float64 `json:"first_step_seconds"`
	// Loss is the loss at the last step, to check that variants compute the same result.
	Loss float64 `json:"loss"`

	cpu []float64
}

// Options are the options of [Run].
type Options struct {
	Rounds         int
	ConfiguredOnly bool // measure only the configured step
	Finder         *plugin.Finder
	Plugins        plugin.Options
}

// Run measures the configured step with and without the correction, on random tokens. It accepts
// only language models with a known vocabulary.
func Run(ctx context.Context, cfg *config.Config, o Options) (*Report, error) {
	if !cfg.Model.Language() {
		return nil, cfg.ErrorAt("model.kind", "a benchmark needs a language model")
	}
	if cfg.Data.Separate() {
		return nil, cfg.ErrorAt("data", "a benchmark has no documents: its tokens are random")
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
	var warn func(string, ...any)
	if o.Plugins.Logger != nil {
		warn = o.Plugins.Logger.Warn
	}
	dev, err := build.Device(cfg, warn)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if cfg, m, err = build.ResolveRecompute(cfg, m, programs, dev); err != nil {
		return nil, err
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		return nil, err
	}
	isCAGE := cfg.Method.Name == cage.NameCAGE
	correctable := isCAGE || cfg.Method.Name == cage.NameOff
	if correctable { // weights without a method get the correction, which is active if λ_t > 0
		plan.Rules = slices.Clone(plan.Rules)
		for i, r := range plan.Rules {
			if r.Quantizer != nil && (r.Method == nil || len(r.Method.Modes()) == 0) {
				plan.Rules[i].Method = cage.Default
			}
		}
	}
	list, configured := []variant{{Plain, plan, 0}}, 0
	if correctable && len(plan.Weights) > 0 {
		// The steps have a rate of their own, at which the run's λ could be far too large.
		λ := min(cfg.ResolvedMethod().CAGE.Lambda, cage.Default.Lambda)
		list = append(list, variant{WithCAGE, plan, λ})
		if isCAGE && cfg.Method.CAGE.Form != cage.Off {
			configured = 1
		}
	}
	if o.ConfiguredOnly {
		list, configured = list[configured:configured+1], 0
	}
	timings, err := timeVariants(ctx, dev, list, cfg.Model.Vocab, o.Rounds,
		func(c *step.Compiled) error { return build.CheckMemory(cfg, programs, c) })
	if err != nil {
		return nil, err
	}
	return &Report{
		Build: dev.BuildInfo(), Parameters: architecture.CountParams(m.Params(), nil),
		Tokens: cfg.Train.Batch * cfg.Model.Context * cfg.Train.Accumulate,
		FLOPs:  m.StepFLOPs(cfg.Train.Batch, cfg.Model.Context) * float64(cfg.Train.Accumulate),
		Steps:  timings, Seconds: timings[configured].Seconds,
		PeakMemory: resources.PeakMemory(),
	}, nil
}

type variant struct {
	name   string
	plan   step.Plan
	lambda float64 // λ_t of every step; 0 runs without correction
}

// timeVariants compiles the variants and runs rounds of one step of each. The first quarter of the
// rounds, but at least two, warm up and are not counted. All variants start from the same
// parameters and use the same tokens. Check compiles programs of each variant, and checks their
// memory before it is allocated.
func timeVariants(
	ctx context.Context, dev *engine.Device, list []variant, vocab, rounds int,
	check func(c *step.Compiled) error,
) ([]Timing, error) {
	compiled, states := make([]*step.Compiled, len(list)), make([]*step.State, len(list))
	timings := make([]Timing, len(list))
	for i, v := range list {
		began := time.Now()
		c, err := step.Compile(dev, v.plan)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		defer c.Close()
		if err := check(c); err != nil {
			return nil, err
		}
		timings[i].Compile = time.Since(began).Seconds()
		if d := c.Plan().Distillation; d != nil { // the teacher gets random parameters
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
		state, err := c.NewState(ctx, 0, tokens(c, vocab))
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
				t.Compile += wall
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

// tokens returns a batch of random token ids, which are the same at each call.
func tokens(c *step.Compiled, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(0, 0))
	return lists.Make(c.Batch()*(c.Plan().Context+1), func(int) int32 {
		return int32(rng.IntN(vocab))
	})
}

// timeStep returns the wall time and processor time of a step, in seconds. It collects garbage
// before the step; otherwise any variant could bear that cost.
func timeStep(
	c *step.Compiled, state *step.State, lambda float64, vocab, round int,
) (wall, cpu, loss float64, err error) {
	batches := lists.Make(c.Plan().Accumulate, func(int) []int32 { return tokens(c, vocab) })
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
