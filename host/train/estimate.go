package train

import (
	"context"

	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/memory"
	"github.com/cage-qat/cage/host/train/plugin"
)

// EstimateMemory returns the memory that a run needs, by the same estimate with which
// [Run] refuses runs that are too large. It starts the plugins, but neither the device
// nor the run. Data is opened only if the size of the vocabulary comes from its
// tokenizer. Of opts, only Finder and Logger are used.
func EstimateMemory(ctx context.Context, cfg *config.Config, opts Options) (*memory.Report, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Model.Language() && cfg.Model.Vocab == 0 {
		if cfg, err = assembly.PinnedToData(cfg); err != nil {
			return nil, err
		}
	}
	m, err := assembly.Model(cfg)
	if err != nil {
		return nil, err
	}
	programs, err := assembly.Collect(ctx, assembly.Request{
		Config: cfg, Model: m, Batch: assembly.ReplicaBatch(cfg), Finder: opts.Finder, Options: plugin.Options{Logger: opts.Logger},
	})
	if err != nil {
		return nil, err
	}
	return assembly.Memory(cfg, m, programs)
}
