package bench

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// prepared is a configured step before it is compiled.
type prepared struct {
	config   *config.Config
	model    model.Model
	programs *assembly.Programs
	plan     step.Plan
}

// prepare collects the programs of the plugins and plans the step. Benchmarks feed random
// tokens, so that only language models with a known vocabulary can be measured.
func prepare(ctx context.Context, cfg *config.Config, o Options) (*prepared, error) {
	if !cfg.Model.Language() {
		return nil, cfg.ErrorAt("model.kind", "a benchmark is of a language model, not of a problem without data")
	}
	if cfg.Data.Separate() {
		return nil, cfg.ErrorAt("data", "a benchmark has no documents: its tokens are random, and joined")
	}
	if cfg.Model.Vocab == 0 {
		return nil, cfg.ErrorAt("model.vocab", "a benchmark needs the size of the vocabulary")
	}
	p := &prepared{config: cfg}
	var err error
	if p.model, err = assembly.Model(cfg); err != nil {
		return nil, err
	}
	p.programs, err = assembly.Collect(ctx, assembly.Request{Config: cfg, Model: p.model, Batch: assembly.ReplicaBatch(cfg), Finder: o.Finder, Options: o.Plugins})
	if err != nil {
		return nil, err
	}
	if err := assembly.CheckMemory(cfg, p.model, p.programs); err != nil {
		return nil, err
	}
	p.plan, err = assembly.Plan(cfg, p.model, p.programs)
	return p, err
}

// open prepares the configured step and opens its device, which the caller closes.
func open(ctx context.Context, cfg *config.Config, o Options) (*prepared, *engine.Device, error) {
	p, err := prepare(ctx, cfg, o)
	if err != nil {
		return nil, nil, err
	}
	dev, err := assembly.Device(cfg, o.warn())
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
}

func (p *prepared) workload(dev *engine.Device) Workload {
	c := p.config
	return Workload{dev.BuildInfo(), architecture.CountParams(p.model.Params(), nil), c.Train.Batch * c.Model.Context * c.Train.Accumulate}
}

// variant is a step to be measured beside others.
type variant struct {
	name   string
	plan   step.Plan
	lambda float64
}

// inTurn compiles the variants and measures them with [Steps].
func inTurn(ctx context.Context, dev *engine.Device, variants []variant, vocab, rounds int) ([]Timing, error) {
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
