package build

import (
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// Batches is an infinite sequence of micro-batches: windows of tokens, rows of documents, or the
// noise of a problem without data. It is not safe for concurrent use.
type Batches struct {
	Len int // number of elements in a batch
	// At fills dst with the micro-batch at the given index, counted from 0.
	At func(index int64, dst []int32) error
	// Finish completes the micro-batches of one step: it normalizes the weights of their targets,
	// if they have weights, and returns the number of targets.
	Finish func(batches [][]int32) (targets int64)
}

type sampler interface {
	BatchLen() int
	At(index int64, dst []int32) error
}

// OpenBatches returns the training batches of a model. d holds the data of a language model; it is
// not used for other models.
func OpenBatches(cfg *config.Config, m model.Model, d *Data) (Batches, error) {
	if q, ok := m.(*model.Quadratic); ok {
		s := q.NoiseSource(uint64(cfg.Seed))
		return Batches{s.BatchLen(), s.At, func([][]int32) int64 { return 0 }}, nil
	}
	context, size := cfg.Model.Context, cfg.Train.Batch
	finish := func(list [][]int32) int64 {
		return normalize(list, context, cfg.Train.LossMean == config.MeanOfMicroBatches)
	}
	if d.Train.Conversations() {
		s := d.counted // reused, because packing all epochs of a large file takes long
		d.counted = nil
		if s == nil || s.Config() != trainRows(cfg) {
			var err error
			if s, err = openRows(cfg, d.Train); err != nil {
				return Batches{}, err
			}
		}
		accumulate := int64(cfg.Train.Accumulate)
		return Batches{size * dataset.Planes * (context + 1), func(index int64, dst []int32) error {
			_, err := s.At(index/accumulate, int(index%accumulate)*size, dataset.RowsOf(dst, context))
			return err
		}, finish}, nil
	}
	s, err := openWindows(cfg, d)
	if err != nil {
		return Batches{}, err
	}
	if !cfg.Data.Separate() {
		all := func(list [][]int32) int64 { return int64(len(list) * size * context) }
		return Batches{s.BatchLen(), s.At, all}, nil
	}
	read := make([]int32, s.BatchLen())
	return Batches{len(read) * dataset.Planes, func(index int64, dst []int32) error {
		err := s.At(index, read)
		if err == nil {
			separate(dst, read, context, d.Train.Tokenizer())
		}
		return err
	}, finish}, nil
}

func openWindows(cfg *config.Config, d *Data) (sampler, error) {
	how := dataset.WindowsConfig{Context: cfg.Model.Context, Batch: cfg.Train.Batch,
		Seed: uint64(cfg.Data.Seed)}
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
	var err error
	if d.mixture, err = dataset.NewMixture(sources, how); err != nil {
		return nil, cfg.ErrorAt("data.mixture", "%w", err)
	}
	return d.mixture, nil
}

// MixtureEpochs returns how many epochs of each source the given number of batches covers. It
// returns nil if the data is not a mixture.
func (d *Data) MixtureEpochs(batches int64) []float64 {
	if d == nil || d.mixture == nil {
		return nil
	}
	return d.mixture.Epochs(batches)
}

// normalize counts the targets of a step and normalizes their weights. If perBatch is set, all
// micro-batches with targets have the same weight.
func normalize(batches [][]int32, context int, perBatch bool) (sum int64) {
	var used [][]int32
	for _, b := range batches {
		if count := targets(b, context); count > 0 {
			sum, used = sum+count, append(used, b)
		}
	}
	if !perBatch {
		dataset.NormalizeWeights(batches, context)
		return sum
	}
	for _, b := range used {
		dataset.NormalizeWeights([][]int32{b}, context)
		dataset.ScaleWeights(b, context, float64(len(batches))/float64(len(used)))
	}
	return sum
}

func openRows(cfg *config.Config, f *dataset.File) (*dataset.Rows, error) {
	s, err := dataset.NewRows(f, trainRows(cfg))
	if err != nil {
		return nil, cfg.ErrorAt("data.train", "%w", err)
	}
	if steps := s.Steps(); int64(cfg.Train.Steps) > steps {
		return nil, cfg.ErrorAt("train.steps", "%d steps, but data.epochs = %d of %s gives %d",
			cfg.Train.Steps, cfg.Data.Epochs, f.Path(), steps).
			WithHint("leave the key out to take all, or raise data.epochs")
	}
	return s, nil
}

func trainRows(cfg *config.Config) dataset.RowsConfig {
	return conversationRows(cfg, cfg.Train.Batch*cfg.Train.Accumulate)
}

func conversationRows(cfg *config.Config, batch int) dataset.RowsConfig {
	return dataset.RowsConfig{Length: cfg.Model.Context, Batch: batch, Epochs: cfg.Data.Epochs,
		Packing: dataset.Packing(cfg.Data.Packing), Seed: uint64(cfg.Data.Seed)}
}

// OpenSequence returns the batches of a token file, in order, for evaluating the configured model.
// batch is the number of rows in each.
func OpenSequence(cfg *config.Config, file *dataset.File, batch int) (step.Sequence, error) {
	context := cfg.Model.Context
	if file.Conversations() {
		how := conversationRows(cfg, batch)
		how.Epochs, how.InOrder = 1, true
		s, err := dataset.NewRows(file, how)
		if err != nil {
			return step.Sequence{}, err
		}
		at := func(i int64, dst []int32) (int, int64, error) {
			n, err := s.At(i, 0, dataset.RowsOf(dst, context))
			return n, targets(dst, context), err
		}
		length := batch * dataset.Planes * (context + 1)
		return step.Sequence{Batches: s.Steps(), Len: length, At: at}, nil
	}
	s, err := dataset.NewSequential(file, context, batch)
	if err != nil {
		return step.Sequence{}, err
	}
	out := step.Sequence{Batches: s.Batches(), Len: s.BatchLen()}
	if !cfg.Data.Separate() {
		out.At = func(i int64, dst []int32) (int, int64, error) {
			n, err := s.At(i, dst)
			return n, int64(n * context), err
		}
		return out, nil
	}
	read, info := make([]int32, out.Len), file.Tokenizer()
	out.Len *= dataset.Planes
	out.At = func(i int64, dst []int32) (int, int64, error) {
		n, err := s.At(i, read)
		if err != nil {
			return 0, 0, err
		}
		clear(dst)
		size := dataset.Planes * (context + 1)
		separate(dst[:n*size], read, context, info)
		for _, row := range dataset.RowsOf(dst[n*size:], context) {
			for position := range row.Segments {
				row.Segments[position] = dataset.Padding
			}
		}
		return n, targets(dst, context), nil
	}
	return out, nil
}

// separate converts windows of tokens, [rows, context+1], to rows of documents in dst. The first
// token of a document is not a target.
func separate(dst, windows []int32, context int, info tokenizer.Info) {
	width := context + 1
	for i, row := range dataset.RowsOf(dst, context) {
		copy(row.Tokens, windows[i*width:(i+1)*width])
		numberDocuments(row.Segments, row.Tokens, info)
		for position := 1; position < width; position++ {
			weight := float32(1)
			if row.Segments[position] != row.Segments[position-1] {
				weight = 0
			}
			row.SetWeight(position, weight)
		}
	}
}

// numberDocuments stores the document number of each token, counted from 0, in segments. A document
// starts at a BOS token and after an EOS token. If these are the same token, it only starts a
// document: dataset.Writer then writes no EOS tokens.
func numberDocuments(segments, window []int32, info tokenizer.Info) {
	ends := info.EOS != tokenizer.NoToken && info.EOS != info.BOS
	number := int32(0)
	for i, token := range window {
		if i > 0 && (token == info.BOS || ends && window[i-1] == info.EOS) {
			number++
		}
		segments[i] = number
	}
}

func targets(batch []int32, context int) int64 { return int64(dataset.TotalWeight(batch, context)) }
