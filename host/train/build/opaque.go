package build

import (
	"context"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
)

// opaquePart is what an opaque optimizer updates: its plugin has ended when the programs of the others have been
// collected, and is started again for the training.
type opaquePart struct {
	key     string // in the configuration
	client  *plugin.Client
	tensors []plugin.OpaqueTensor
}

func (p *Programs) addOpaque(table *config.Plugin, c *plugin.Client, t *TrainedTensor, tensor sdk.Tensor) {
	t.Executable = c.SHA256()
	part := opaquePart{table.Path("plugin"), c, []plugin.OpaqueTensor{{Tensor: tensor, State: t.Optimizer.State, RateFactor: t.RateFactor}}}
	for i, known := range p.opaque {
		if known.client == c {
			p.opaque[i].tensors = append(known.tensors, part.tensors...)
			return
		}
	}
	p.opaque = append(p.opaque, part)
}

// searchPart is what a quantizer searches: its plugin, too, is started again for the training.
type searchPart struct {
	key    string // in the configuration
	client *plugin.Client
	sites  []plugin.SearchedSite
}

func (p *Programs) addSearch(table *config.Plugin, c *plugin.Client, site plugin.SearchedSite) {
	p.executables[site.Name] = c.SHA256()
	for i, known := range p.searches {
		if known.client == c {
			p.searches[i].sites = append(known.sites, site)
			return
		}
	}
	p.searches = append(p.searches, searchPart{table.Path("plugin"), c, []plugin.SearchedSite{site}})
}

func (b *Built) startSearches(ctx context.Context, cfg *config.Config) (map[string]step.Search, error) {
	byWeight := map[string]step.Search{}
	for _, part := range b.Programs.searches {
		s, err := plugin.NewSearcher(ctx, part.client, part.sites, cfg.Train.Steps)
		if err != nil {
			return nil, cfg.ErrorAt(part.key, "%w", err)
		}
		b.processes = append(b.processes, s)
		for _, site := range part.sites {
			byWeight[site.Name] = s
		}
	}
	return byWeight, nil
}

func (b *Built) startOpaque(ctx context.Context, cfg *config.Config) (map[string]step.Opaque, error) {
	byTensor := map[string]step.Opaque{}
	for _, part := range b.Programs.opaque {
		s, err := plugin.NewStepper(ctx, part.client, part.tensors)
		if err != nil {
			return nil, cfg.ErrorAt(part.key, "%w", err)
		}
		b.processes = append(b.processes, s)
		for _, t := range part.tensors {
			byTensor[t.Name] = s
		}
	}
	return byTensor, nil
}
