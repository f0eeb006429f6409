// Package bench measures training steps. Several variants of one step run in turn on the
// same batch, A B C A B C …, so that whatever disturbs the machine disturbs all of them
// alike, and ratios are computed within each round.
//
// Steps that exist only for comparison, such as the algorithms of plugins written
// directly in the host (package direct), live in subpackages, and nothing else may use
// them.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/resources"
)

// Subject is one variant of a step.
type Subject struct {
	Name     string
	Compiled *step.Compiled
	// Lambda is λ_t of every step; 0 runs without correction.
	Lambda float64
}

// Timing is the measurements of one subject.
type Timing struct {
	Name string `json:"name"`
	// Seconds is the median time of a step, over the rounds after the warm-up.
	Seconds float64 `json:"seconds"`
	// All holds the times of all counted rounds.
	All []float64 `json:"all_seconds"`
	// Ratio is the median over the rounds of this subject's time divided by
	// the first one's; Low and High are the quartiles.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low_quartile"`
	High  float64 `json:"ratio_high_quartile"`
	// Mean is the mean time of a step, and MeanRatio its ratio to that of the first
	// subject. The mean is what counts if some steps do more than others, such as those
	// that refresh preconditioners.
	Mean      float64 `json:"mean_seconds"`
	MeanRatio float64 `json:"mean_ratio"`
	// CPU is the median of the processor time of a step, over all threads together, and
	// CPURatio its median ratio to the first subject's. Other load on the machine hardly
	// affects them. They are 0 if the system does not tell.
	CPU      float64 `json:"cpu_seconds"`
	CPURatio float64 `json:"cpu_ratio"`
	// CPUMean and CPUMeanRatio are the mean of the processor time and its ratio to the
	// first subject's.
	CPUMean      float64 `json:"cpu_mean_seconds"`
	CPUMeanRatio float64 `json:"cpu_mean_ratio"`
	// Compile is how long compiling and the first step took.
	Compile float64 `json:"first_step_seconds"`
	// Loss is the loss of the last step, to check that variants compute the same.
	Loss float64 `json:"loss"`

	cpu       []float64
	firstDone time.Time
}

// Steps runs rounds of one step of every subject and returns their timings in
// order. A quarter of the rounds, at least two, warm up and do not count. All
// subjects start from the same parameters and see the same tokens.
func Steps(ctx context.Context, subjects []Subject, vocab, rounds int) ([]Timing, error) {
	states := make([]*step.State, len(subjects))
	timings := make([]Timing, len(subjects))
	defer func() {
		for _, s := range states {
			if s != nil {
				s.Close()
			}
		}
	}()
	for i, s := range subjects {
		var err error
		if states[i], err = s.Compiled.NewState(0, tokens(s.Compiled, vocab)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		timings[i].Name = s.Name
	}
	warmUp := max(2, rounds/4)
	for round := range warmUp + rounds {
		for i, s := range subjects {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			m, err := timeStep(s, states[i], vocab, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			switch {
			case round == 0:
				timings[i].Compile, timings[i].firstDone = m.wall, time.Now()
			case round >= warmUp:
				timings[i].All = append(timings[i].All, m.wall)
				timings[i].cpu = append(timings[i].cpu, m.cpu)
			}
			timings[i].Loss = m.loss
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

// stepTimes is what one step took.
type stepTimes struct{ wall, cpu, loss float64 }

// timeStep times a step. Collecting garbage is not part of it, as it would hit whichever
// subject comes next.
func timeStep(s Subject, state *step.State, vocab, round int) (stepTimes, error) {
	p := s.Compiled.Plan()
	batches := make([][]int32, p.Accumulate)
	for i := range batches {
		batches[i] = tokens(s.Compiled, vocab)
	}
	runtime.GC()
	began, used := time.Now(), resources.ProcessorTime()
	res, err := s.Compiled.Step(state, batches, step.Settings{
		Step: round + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: s.Lambda,
	})
	if err == nil && res.Skipped {
		err = fmt.Errorf("step %d is not finite", round+1)
	}
	return stepTimes{time.Since(began).Seconds(), (resources.ProcessorTime() - used).Seconds(), res.Loss}, err
}

func summarize(t, first *Timing) {
	wall := ratios(t.All, first.All)
	t.Seconds = quantile(t.All, 0.5)
	t.Ratio, t.Low, t.High = quantile(wall, 0.5), quantile(wall, 0.25), quantile(wall, 0.75)
	t.Mean = stat.Mean(t.All, nil)
	t.MeanRatio = t.Mean / stat.Mean(first.All, nil)
	t.CPU, t.CPURatio = quantile(t.cpu, 0.5), quantile(ratios(t.cpu, first.cpu), 0.5)
	if t.CPUMean = stat.Mean(t.cpu, nil); t.CPUMean > 0 {
		t.CPUMeanRatio = t.CPUMean / stat.Mean(first.cpu, nil)
	}
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	out := make([]float64, 0, len(a))
	for i := range a {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// quantile interpolates linearly between the sorted values; values is not changed.
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

// preparedStep is a configured step before it is compiled.
type preparedStep struct {
	config   *config.Config
	model    model.Model
	programs *build.Programs
	plan     step.Plan
}

// prepare collects the programs of the plugins and plans the step. Benchmarks feed random
// tokens, so that only language models with a known vocabulary can be measured.
func prepare(ctx context.Context, cfg *config.Config, o Options) (*preparedStep, error) {
	if !cfg.Model.Language() {
		return nil, cfg.ErrorAt("model.kind", "a benchmark is of a language model, not of a problem without data")
	}
	if cfg.Data.Separate() {
		return nil, cfg.ErrorAt("data", "a benchmark has no documents: its tokens are random, and joined")
	}
	if cfg.Model.Vocab == 0 {
		return nil, cfg.ErrorAt("model.vocab", "a benchmark needs the size of the vocabulary")
	}
	p := &preparedStep{config: cfg}
	var err error
	if p.model, err = build.Model(cfg); err != nil {
		return nil, err
	}
	p.programs, err = build.Collect(ctx, build.Request{Config: cfg, Model: p.model, Batch: build.ReplicaBatch(cfg), Finder: o.Finder, Options: o.Plugins})
	if err != nil {
		return nil, err
	}
	if err := build.CheckMemory(cfg, p.model, p.programs); err != nil {
		return nil, err
	}
	p.plan, err = build.Plan(cfg, p.model, p.programs)
	return p, err
}

// openStep prepares the configured step and opens its device, which the caller closes.
func openStep(ctx context.Context, cfg *config.Config, o Options) (*preparedStep, *engine.Device, error) {
	p, err := prepare(ctx, cfg, o)
	if err != nil {
		return nil, nil, err
	}
	dev, err := build.Device(cfg, o.warn())
	return p, dev, err
}

// loadTeacher gives the teacher of a step, if it has one, parameters that are drawn: benchmarks read no weights.
func loadTeacher(c *step.Compiled) error {
	d := c.Plan().Distillation
	if d == nil {
		return nil
	}
	params := map[string]architecture.Param{}
	for _, p := range d.Teacher.Params() {
		params[p.Name] = p
	}
	return c.LoadTeacher(step.LoadParams(d.Teacher, func(name string) ([]float32, error) { return params[name].Init(0), nil }))
}

// Workload describes what was measured, and on what.
type Workload struct {
	Build      engine.BuildInfo `json:"build"`
	Parameters int              `json:"parameters"`
	Tokens     int              `json:"tokens_per_step"`
	// Choices are those that the device made until then: see [engine.Device.ChooseFused].
	Choices []engine.Choice `json:"choices,omitempty"`
}

func (p *preparedStep) workload(dev *engine.Device) Workload {
	c := p.config
	return Workload{dev.BuildInfo(), architecture.CountParams(p.model.Params(), nil), c.Train.Batch * c.Model.Context * c.Train.Accumulate, dev.Choices()}
}

// variant is a step to be measured beside others.
type variant struct {
	name   string
	plan   step.Plan
	lambda float64
}

// measureInTurn compiles the variants and measures them with [Steps].
func measureInTurn(ctx context.Context, dev *engine.Device, variants []variant, vocab, rounds int) ([]Timing, error) {
	var subjects []Subject
	for _, v := range variants {
		c, err := step.Compile(dev, v.plan)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		defer c.Close()
		if err := loadTeacher(c); err != nil {
			return nil, err
		}
		subjects = append(subjects, Subject{v.name, c, v.lambda})
	}
	return Steps(ctx, subjects, vocab, rounds)
}
