package assembly

import (
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/model"
)

// Model makes the model that the configuration describes; its vocabulary must be
// known.
func Model(cfg *config.Config) (model.Model, error) {
	m := cfg.Model
	llama, err := model.NewLlama(model.LlamaConfig{
		Layers: m.Layers, Heads: m.Heads, Width: m.Width, Hidden: m.Hidden,
		Vocabulary: m.Vocab, NormEpsilon: m.NormEps, RopeTheta: m.RopeTheta, InitStd: m.InitStd,
	})
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return llama, nil
}
