package assembly

import (
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/model"
)

// Batches is an endless sequence of micro-batches: windows of tokens, or the noise of
// a problem without data. It is used by one goroutine at a time.
type Batches interface {
	// BatchLen is the number of elements of a batch.
	BatchLen() int
	// At fills dst with batch index, from 0.
	At(index int64, dst []int32) error
}

// OpenBatches returns the batches that a model is trained on. d are
// the token files of a language model, nil for other models.
func OpenBatches(cfg *config.Config, m model.Model, d *Data) (Batches, error) {
	if q, ok := m.(*model.Quadratic); ok {
		return q.NoiseSource(uint64(cfg.Seed)), nil
	}
	s, err := data.NewSampler(d.Train, data.SamplerConfig{
		Context: cfg.Model.Context, Batch: cfg.Train.Batch, Seed: uint64(cfg.Data.Seed),
	})
	if err != nil {
		return nil, cfg.ErrorAt("data.train", "%w", err)
	}
	return s, nil
}
