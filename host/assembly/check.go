package assembly

import (
	"context"
	"encoding/json"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/plugin"
)

// Check finds out which of the configurations could not be trained for what only data,
// model and plugins can tell: a parameter that a plugin does not have, a shape that it
// refuses, a token file with another vocabulary. It starts each plugin once for all of
// them, and changes nothing in the configurations. The result has an error, such as
// [config.Errors], or nil for each configuration.
func Check(ctx context.Context, list []*config.Config, finder *plugin.Finder, options plugin.Options) []error {
	running := newPool(finder, options)
	defer running.close()
	errs := make([]error, len(list))
	good := map[string]bool{}
	for i, cfg := range list {
		if errs[i] = ctx.Err(); errs[i] != nil {
			continue
		}
		// The cells of a study are alike in most of what matters here. Only the good
		// ones are known by it: a problem is to be placed where it stands in each.
		key, err := askedOf(cfg)
		if err == nil && good[key] {
			continue
		}
		if errs[i] = check(ctx, cfg, running); errs[i] == nil && err == nil {
			good[key] = true
		}
	}
	return errs
}

// askedOf is a text in which two configurations are equal when data, model and plugins
// are asked the same for both.
func askedOf(cfg *config.Config) (string, error) {
	c := *cfg
	c.Seed, c.Data.Seed = 0, 0
	c.Train = config.Train{Batch: c.Train.Batch, Clip: c.Train.Clip}
	c.Schedule, c.Diagnostics, c.Device = config.Schedule{}, config.Diagnostics{}, config.Device{Count: c.Device.Count}
	c.Method.Lambda, c.Method.Silence = 0, 0
	text, err := json.Marshal(&c)
	return string(text), err
}

// check goes the way of a training up to its plan.
func check(ctx context.Context, cfg *config.Config, running *pool) error {
	own := *cfg // the vocabulary is filled in
	if own.Model.Language() {
		d, err := OpenData(&own)
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	m, err := Model(&own)
	if err != nil {
		return err
	}
	c := newCollector(Request{Config: &own, Model: m, Batch: ReplicaBatch(&own)}, running)
	programs, err := c.collect(ctx)
	if err != nil {
		return err
	}
	_, err = Plan(&own, m, programs)
	return err
}
