package build

import (
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// OpenSequence opens a token file for evaluating a model of this configuration, with batch rows per
// batch.
func OpenSequence(cfg *config.Config, file *dataset.File, batch int) (step.Sequence, error) {
	context := cfg.Model.Context
	if file.Conversations() {
		how := conversationRows(cfg, batch)
		how.Epochs, how.InOrder = 1, true
		s, err := dataset.NewRows(file, how)
		if err != nil {
			return nil, err
		}
		return &conversationsInOrder{s, context, newRows(batch, context)}, nil
	}
	s, err := dataset.NewSequential(file, context, batch)
	if err != nil || !cfg.Data.Separate() {
		return windowsInOrder{s, context}, err
	}
	return &documentsInOrder{s, context, file.Tokenizer(), make([]int32, s.BatchLen())}, nil
}

type windowsInOrder struct {
	*dataset.Sequential
	context int
}

func (w windowsInOrder) At(i int64, dst []int32) (int, int64, error) {
	n, err := w.Sequential.At(i, dst)
	return n, int64(n * w.context), err
}

type documentsInOrder struct {
	*dataset.Sequential
	context int
	info    tokenizer.Info
	read    []int32
}

func (d *documentsInOrder) BatchLen() int { return len(d.read) * model.Planes }

func (d *documentsInOrder) At(i int64, dst []int32) (int, int64, error) {
	n, err := d.Sequential.At(i, d.read)
	if err != nil {
		return 0, 0, err
	}
	clear(dst)
	size := model.Planes * (d.context + 1)
	separate(dst[:n*size], d.read, d.context, d.info)
	for _, row := range model.DocumentRows(dst[n*size:], d.context) {
		for place := range row.Segments {
			row.Segments[place] = model.Padding
		}
	}
	return n, targets(dst, d.context), nil
}

type conversationsInOrder struct {
	sampler *dataset.Rows
	context int
	read    []dataset.Row
}

func (c *conversationsInOrder) Batches() int64 { return c.sampler.Steps() }

func (c *conversationsInOrder) BatchLen() int { return len(c.read) * model.Planes * (c.context + 1) }

func (c *conversationsInOrder) At(i int64, dst []int32) (int, int64, error) {
	n, err := c.sampler.At(i, 0, c.read)
	if err != nil {
		return 0, 0, err
	}
	for j, row := range model.DocumentRows(dst, c.context) {
		conversation(row, c.read[j])
	}
	return n, targets(dst, c.context), nil
}

// separate fills dst, rows of documents, from windows of tokens, [rows, context+1]. The first token
// of a document is not a target.
func separate(dst, windows []int32, context int, info tokenizer.Info) {
	width := context + 1
	for i, row := range model.DocumentRows(dst, context) {
		copy(row.Tokens, windows[i*width:(i+1)*width])
		numberDocuments(row.Segments, row.Tokens, info)
		for place := 1; place < width; place++ {
			weight := float32(1)
			if row.Segments[place] != row.Segments[place-1] {
				weight = 0
			}
			row.SetWeight(place, weight)
		}
	}
}

// numberDocuments fills segments with the numbers, from 0, of the documents in a window of tokens:
// a document starts at a BOS token and after an EOS token. If both are the same token, documents
// have no EOS token, as dataset.Writer writes them.
func numberDocuments(segments, window []int32, info tokenizer.Info) {
	ends := info.EOS != tokenizer.NoToken && info.EOS != info.BOS
	number := int32(0)
	for place, token := range window {
		if place > 0 && (token == info.BOS || ends && window[place-1] == info.EOS) {
			number++
		}
		segments[place] = number
	}
}

// conversation fills a row of documents from a row of conversations, which has the length of the
// context: the position after it is padding.
func conversation(row model.DocumentRow, from dataset.Row) {
	n := copy(row.Tokens, from.Tokens)
	row.Tokens[n], row.Segments[n] = 0, model.Padding
	copy(row.Segments, from.Segments)
	for place := 1; place < n; place++ {
		row.SetWeight(place, from.Weights[place-1])
	}
	row.SetWeight(n, 0)
}

func targets(batch []int32, context int) int64 { return int64(model.TotalWeight(batch, context)) }
