package build

import (
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
)

// Batches is an infinite sequence of micro-batches: windows of tokens, rows of documents, or the
// noise of a problem without data. It is used by one goroutine at a time.
type Batches interface {
	// BatchLen returns the number of elements in a batch.
	BatchLen() int
	// At fills dst with the batch of this index, counted from 0.
	At(index int64, dst []int32) error
	// Finish completes the batches of one step (if targets have weights, it
	// normalizes them), and returns the number of targets in them.
	Finish(batches [][]int32) (targets int64)
}

type sampler interface {
	BatchLen() int
	At(index int64, dst []int32) error
}

// OpenBatches returns the training batches of a model. d is the data of a language model; nil for
// other models.
func OpenBatches(cfg *config.Config, m model.Model, d *Data) (Batches, error) {
	if q, ok := m.(*model.Quadratic); ok {
		return noise{q.NoiseSource(uint64(cfg.Seed))}, nil
	}
	how := normalization{cfg.Model.Context, cfg.Train.LossMean == config.MeanOfMicroBatches}
	if d.Train.Conversations() {
		s := d.counted // reused if it matches: packing all epochs of a large file takes long
		d.counted = nil
		if s == nil || s.Config() != trainRows(cfg) {
			var err error
			if s, err = openRows(cfg, d.Train); err != nil {
				return nil, err
			}
		}
		return &conversations{how, s, cfg.Train.Batch, int64(cfg.Train.Accumulate), newRows(cfg.Train.Batch, cfg.Model.Context)}, nil
	}
	s, err := openWindows(cfg, d)
	if err != nil || !cfg.Data.Separate() {
		return windows{s, cfg.Train.Batch * cfg.Model.Context}, err
	}
	return &documents{s, how, d.Train.Tokenizer(), make([]int32, s.BatchLen())}, nil
}

func openWindows(cfg *config.Config, d *Data) (sampler, error) {
	how := dataset.WindowsConfig{Context: cfg.Model.Context, Batch: cfg.Train.Batch, Seed: uint64(cfg.Data.Seed)}
	if d.Sources == nil {
		s, err := dataset.NewWindows(d.Train, how)
		if err != nil {
			return nil, cfg.ErrorAt("data.train", "%w", err)
		}
		return s, nil
	}
	var sources []dataset.Weighted
	for i, f := range d.Sources {
		sources = append(sources, dataset.Weighted{File: f, Weight: cfg.Data.Mixture[i].Weight})
	}
	mixture, err := dataset.NewMixture(sources, how)
	if err != nil {
		return nil, cfg.ErrorAt("data.mixture", "%w", err)
	}
	return mixture, nil
}

type noise struct{ sampler }

func (noise) Finish([][]int32) int64 { return 0 }

type windows struct {
	sampler
	targets int // of a batch
}

func (w windows) Finish(batches [][]int32) int64 { return int64(len(batches) * w.targets) }

// MixtureEpochs returns, for each source of a mixture, the number of its epochs in the given number
// of batches; nil if the batches are not from a mixture.
func MixtureEpochs(b Batches, batches int64) []float64 {
	var s sampler
	switch b := b.(type) {
	case windows:
		s = b.sampler
	case *documents:
		s = b.sampler
	}
	if m, ok := s.(*dataset.Mixture); ok {
		return m.Epochs(batches)
	}
	return nil
}

type documents struct {
	sampler
	normalization
	info tokenizer.Info
	read []int32 // a batch of windows
}

func (d *documents) BatchLen() int { return len(d.read) * model.Planes }

func (d *documents) At(index int64, dst []int32) error {
	if err := d.sampler.At(index, d.read); err != nil {
		return err
	}
	separate(dst, d.read, d.context, d.info)
	return nil
}

// normalization selects how the weights of a step's targets are scaled.
type normalization struct {
	context int
	each    bool // weight the mean of each micro-batch equally
}

// Finish counts the targets of a step and normalizes their weights. If the means of
// micro-batches are averaged, those without targets are left out.
func (n normalization) Finish(batches [][]int32) (sum int64) {
	var used [][]int32
	for _, b := range batches {
		if count := targets(b, n.context); count > 0 {
			sum, used = sum+count, append(used, b)
		}
	}
	if !n.each {
		model.NormalizeWeights(batches, n.context)
		return sum
	}
	for _, b := range used {
		model.NormalizeWeights([][]int32{b}, n.context)
		model.ScaleWeights(b, n.context, float64(len(batches))/float64(len(used)))
	}
	return sum
}

type conversations struct {
	normalization
	sampler    *dataset.Rows
	batch      int
	accumulate int64
	read       []dataset.Row
}

func openRows(cfg *config.Config, f *dataset.File) (*dataset.Rows, error) {
	s, err := dataset.NewRows(f, trainRows(cfg))
	if err != nil {
		return nil, cfg.ErrorAt("data.train", "%w", err)
	}
	if steps := s.Steps(); int64(cfg.Train.Steps) > steps {
		e := cfg.ErrorAt("train.steps", "%d steps, but data.epochs = %d of %s gives %d", cfg.Train.Steps, cfg.Data.Epochs, f.Path(), steps)
		e.Hint = "leave the key out to take all, or raise data.epochs"
		return nil, e
	}
	return s, nil
}

func trainRows(cfg *config.Config) dataset.RowsConfig {
	return conversationRows(cfg, cfg.Train.Batch*cfg.Train.Accumulate)
}

func conversationRows(cfg *config.Config, batch int) dataset.RowsConfig {
	return dataset.RowsConfig{Length: cfg.Model.Context, Batch: batch, Epochs: cfg.Data.Epochs, Packing: dataset.Packing(cfg.Data.Packing), Seed: uint64(cfg.Data.Seed)}
}

func newRows(n, length int) []dataset.Row {
	list := make([]dataset.Row, n)
	for i := range list {
		list[i] = dataset.NewRow(length)
	}
	return list
}

func (c *conversations) BatchLen() int { return c.batch * model.Planes * (c.context + 1) }

func (c *conversations) At(index int64, dst []int32) error {
	if _, err := c.sampler.At(index/c.accumulate, int(index%c.accumulate)*c.batch, c.read); err != nil {
		return err
	}
	for i, row := range model.DocumentRows(dst, c.context) {
		conversation(row, c.read[i])
	}
	return nil
}
