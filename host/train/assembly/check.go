package assembly

import (
	"context"
	"encoding/json"

	"github.com/cage-qat/cage/host/method/diagnostics"
	"github.com/cage-qat/cage/host/method/schedule"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
)

// Survey checks whether configurations can be trained, as far as that takes their data,
// model and plugins: for example, whether a plugin has a parameter, accepts a shape, or
// whether a token file has the model's vocabulary. For those that can be trained, it
// compares programs and data with those of the existing run. It starts each plugin once
// for all configurations, and does not change the configurations.
func Survey(ctx context.Context, list []*config.Config, finder *plugin.Finder, options plugin.Options) []config.Finding {
	running := newPool(finder, options)
	defer running.close()
	out := make([]config.Finding, len(list))
	checked := map[string]trainingInputs{}
	for i, cfg := range list {
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		// Most cells of a study differ in nothing that is checked here. Only good results are
		// shared: a problem is reported with the line that each configuration has it on.
		key, unknown := surveyKey(cfg)
		now, ok := checked[key]
		if unknown != nil || !ok {
			if now, out[i].Err = check(ctx, cfg, running); out[i].Err != nil {
				continue
			}
			if unknown == nil {
				checked[key] = now
			}
		}
		out[i].Stale, out[i].Programs, out[i].Data = now.stale(cfg), now.programs, now.data.Hashes()
	}
	return out
}

// surveyKey returns a text that two configurations share when the same data, model and plugins have the same to check in
// both.
func surveyKey(cfg *config.Config) (string, error) {
	c := *cfg
	c.Seed = 0
	t := c.Train
	c.Train = config.Train{Batch: t.Batch, Clip: t.Clip, Distillation: t.Distillation}
	if c.Data.Kind == config.KindChat { // how many steps there are follows from how conversations are laid out
		c.Train.Accumulate, c.Train.Steps = t.Accumulate, t.Steps
	} else {
		c.Data.Seed, c.Schedule = 0, schedule.Settings{}
	}
	c.Diagnostics, c.Device = diagnostics.Settings{}, config.Device{Count: c.Device.Count}
	c.Method.Lambda, c.Method.Silence = 0, 0
	text, err := json.Marshal(&c)
	return string(text), err
}

// check does what a training does, up to its plan.
func check(ctx context.Context, cfg *config.Config, running *pool) (trainingInputs, error) {
	if cfg.Model.Language() {
		var err error
		if cfg, err = PinnedToData(cfg); err != nil {
			return trainingInputs{}, err
		}
	}
	m, err := Model(cfg)
	if err != nil {
		return trainingInputs{}, err
	}
	c := newCollector(Request{Config: cfg, Model: m, Batch: ReplicaBatch(cfg)}, running)
	programs, err := c.collect(ctx)
	if err != nil {
		return trainingInputs{}, err
	}
	_, err = Plan(cfg, m, programs)
	return trainingInputs{programs: programs.Hashes(), data: cfg.Data}, err
}
