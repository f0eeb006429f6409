package assembly

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

// addOpaque notes that a tensor has an opaque optimizer.
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

// startOpaque starts the opaque optimizers of a training and returns them by the names of their tensors.
func (b *Built) startOpaque(ctx context.Context, cfg *config.Config) (map[string]step.Opaque, error) {
	byTensor := map[string]step.Opaque{}
	for _, part := range b.Programs.opaque {
		s, err := plugin.NewStepper(ctx, part.client, part.tensors)
		if err != nil {
			return nil, cfg.ErrorAt(part.key, "%w", err)
		}
		b.steppers = append(b.steppers, s)
		for _, t := range part.tensors {
			byTensor[t.Name] = s
		}
	}
	return byTensor, nil
}
