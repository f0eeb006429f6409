package assembly

import (
	"fmt"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/model"
)

// Model makes the model that the configuration describes; the vocabulary of a
// language model must be known.
func Model(cfg *config.Config) (model.Model, error) {
	m, err := newModel(cfg)
	if err != nil {
		return nil, cfg.ErrorAt("model.kind", "%w", err)
	}
	return m, nil
}

func newModel(cfg *config.Config) (model.Model, error) {
	m := cfg.Model
	switch m.Kind {
	case config.KindLlama:
		return model.NewLlama(language(m, cfg.Train))
	case config.KindOLMo2:
		return model.NewOLMo2(model.OLMo2Config(language(m, cfg.Train)))
	case config.KindQuadratic:
		return model.NewQuadratic(model.QuadraticConfig{
			Rows: m.Rows, Dimension: m.Dimension, Condition: m.Condition, Spectrum: m.Spectrum, Optimum: m.Optimum,
			Start: m.Start, StartStd: m.StartStd, Noise: m.Noise, Seed: uint64(m.ProblemSeed),
		})
	case config.KindToy:
		c := model.ToyConfig()
		c.Start, c.StartStd, c.Noise = m.Start, m.StartStd, m.Noise
		return model.NewQuadratic(c)
	}
	return nil, fmt.Errorf("there is no model of kind %q", m.Kind)
}

// language is the shape of a language model, and how training computes it.
func language(m config.Model, t config.Train) model.LlamaConfig {
	c := model.LlamaConfig{
		Layers: m.Layers, Heads: m.Heads, KeyHeads: m.KVHeads, Width: m.Width, Hidden: m.Hidden, Vocabulary: m.Vocab,
		NormEpsilon: m.NormEps, RopeTheta: m.RopeTheta, RopePairs: model.Pairing(m.RopePairs), InitStd: m.InitStd,
		TiedHead:  m.Head == "tied",
		Recompute: t.Recompute == config.RecomputeBlocks,
	}
	if m.RopeFactor != 1 {
		c.RopeScaling = &model.RopeScaling{Factor: m.RopeFactor, Low: m.RopeLow, High: m.RopeHigh, Original: m.RopeOriginal}
	}
	return c
}
