package assembly

import (
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
)

// Model makes the model that the configuration describes; the vocabulary of a
// language model must be known.
func Model(cfg *config.Config) (model.Model, error) {
	m, err := model.New(cfg.Model, model.Options{Recompute: cfg.Train.Recompute == config.RecomputeBlocks, Documents: cfg.Data.Separate()})
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return m, nil
}
