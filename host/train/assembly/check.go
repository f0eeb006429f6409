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
	good := map[string]made{}
	for i, cfg := range list {
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		// Most cells of a study ask the same of data, model and plugins. Only good answers
		// are kept: a problem is reported with the line that each configuration has it on.
		key, unknown := askedOf(cfg)
		now, ok := good[key]
		if unknown != nil || !ok {
			if now, out[i].Err = check(ctx, cfg, running); out[i].Err != nil {
				continue
			}
			if unknown == nil {
				good[key] = now
			}
		}
		out[i].Stale, out[i].Programs, out[i].Data = now.stale(cfg), now.programs, now.data.Hashes()
	}
	return out
}

// askedOf is a text that two configurations share when they ask the same of data, model
// and plugins.
func askedOf(cfg *config.Config) (string, error) {
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
func check(ctx context.Context, cfg *config.Config, running *pool) (made, error) {
	if cfg.Model.Language() {
		var err error
		if cfg, err = PinnedToData(cfg); err != nil {
			return made{}, err
		}
	}
	m, err := Model(cfg)
	if err != nil {
		return made{}, err
	}
	c := newCollector(Request{Config: cfg, Model: m, Batch: ReplicaBatch(cfg)}, running)
	programs, err := c.collect(ctx)
	if err != nil {
		return made{}, err
	}
	_, err = Plan(cfg, m, programs)
	return made{programs: programs.Hashes(), data: cfg.Data}, err
}
