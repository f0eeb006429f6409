package assembly

import (
	"context"
	"encoding/json"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/plugin"
)

// Finding is what [Survey] found out about a configuration.
type Finding struct {
	// Err is why it could not be trained, such as [config.Errors]; nil: it could.
	Err error
	// Stale is why what lies in its run directory, train.out, is not what would be trained
	// there now; empty: nothing lies there, or it is.
	Stale string
}

// Survey finds out which of the configurations could not be trained for what only data,
// model and plugins can tell: a parameter that a plugin does not have, a shape that it
// refuses, a token file with another vocabulary. Of the others it compares programs and
// data with those of the run that is there. It starts each plugin once for all of them,
// and changes nothing in the configurations.
func Survey(ctx context.Context, list []*config.Config, finder *plugin.Finder, options plugin.Options) []Finding {
	running := newPool(finder, options)
	defer running.close()
	out := make([]Finding, len(list))
	good := map[string]made{}
	for i, cfg := range list {
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		// The cells of a study are alike in most of what matters here. Only the good
		// ones are known by it: a problem is to be placed where it stands in each.
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
		out[i].Stale = now.stale(cfg)
	}
	return out
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
func check(ctx context.Context, cfg *config.Config, running *pool) (made, error) {
	own := *cfg // the vocabulary and the hashes of data are filled in
	if own.Model.Language() {
		d, err := OpenData(&own)
		if err != nil {
			return made{}, err
		}
		d.Pin(&own)
		if err := d.Close(); err != nil {
			return made{}, err
		}
	}
	m, err := Model(&own)
	if err != nil {
		return made{}, err
	}
	c := newCollector(Request{Config: &own, Model: m, Batch: ReplicaBatch(&own)}, running)
	programs, err := c.collect(ctx)
	if err != nil {
		return made{}, err
	}
	_, err = Plan(&own, m, programs)
	return made{programs: programs.Hashes(), data: own.Data}, err
}
