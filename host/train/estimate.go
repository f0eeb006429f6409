package train

import (
	"context"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/memory"
	"github.com/cage-qat/cage/host/plugin"
)

// EstimateMemory says how much memory a run needs, by the estimate by which [Run] refuses what
// is too large. It starts the plugins, but neither the device nor the run. Data is opened
// only where the size of the vocabulary is that of its tokenizer. Of opts, Finder and Logger count.
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
