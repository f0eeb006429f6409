package train

import (
	"context"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
)

// RunSeen is Run, which shows its state before the first step.
func RunSeen(ctx context.Context, cfg *config.Config, o Options, see func(*step.State)) (*metrics.Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, opts: o, log: o.Logger, dir: rundir.On(o.Files, cfg.Train.Out)}
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	see(r.state)
	return r.train(ctx)
}
