package assembly

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/arrange"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/regular"
)

// OpenTexts opens a token file. If path is a file of plain text, it returns the content of that file
// instead.
func OpenTexts(path string) (tokens *dataset.File, text []byte, err error) {
	file, err := dataset.Open(path)
	if err == nil {
		return file, nil, nil
	}
	if _, ok := errors.AsType[*dataset.FormatError](err); ok {
		content, readErr := regular.ReadFile(path)
		if readErr == nil && utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
			return nil, content, nil
		}
	}
	return nil, nil, err
}

// Windows draws at most n sequences of the model's context from a token file, without repetition, in an order that the seed
// fixes: windows of texts, or rows of conversations as a training lays them out. segments number the documents in each
// where they are kept apart, with [model.Padding] in places without one; nil where they are not.
func Windows(cfg *config.Config, file *dataset.File, n int, seed uint64) (tokens, segments [][]int32, err error) {
	if file.Conversations() {
		return conversationWindows(cfg, file, n, seed)
	}
	context := cfg.Model.Context
	s, err := arrange.NewWindows(file, arrange.WindowsConfig{Context: context, Batch: 1, Seed: seed})
	if err != nil {
		return nil, nil, err
	}
	for i := range min(int64(n), file.Len()/int64(context)-1) { // as many as an epoch has
		window := make([]int32, s.BatchLen())
		if err := s.At(i, window); err != nil {
			return nil, nil, err
		}
		tokens = append(tokens, window[:context])
		if cfg.Data.Separate() {
			numbers := make([]int32, context)
			numberDocuments(numbers, window[:context], file.Tokenizer())
			segments = append(segments, numbers)
		}
	}
	return tokens, segments, nil
}

// conversationWindows are rows of the first epoch with the given seed.
func conversationWindows(cfg *config.Config, file *dataset.File, n int, seed uint64) (tokens, segments [][]int32, err error) {
	how := conversationRows(cfg, 1)
	how.Epochs, how.Seed = 1, seed
	s, err := arrange.NewRows(file, how)
	if err != nil {
		return nil, nil, err
	}
	for i := range min(int64(n), s.Steps()) {
		row := newRows(1, cfg.Model.Context)
		if _, err := s.At(i, 0, row); err != nil {
			return nil, nil, err
		}
		tokens, segments = append(tokens, row[0].Tokens), append(segments, row[0].Segments)
	}
	return tokens, segments, nil
}

// CutWindows is [Windows] for the tokens of one text, which is one document.
func CutWindows(ids []int32, context, n int, seed uint64) (list [][]int32, err error) {
	if len(ids) < context {
		return nil, fmt.Errorf("%d tokens are less than one window of %d", len(ids), context)
	}
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(ids) / context) {
		if len(list) < n {
			list = append(list, ids[i*context:(i+1)*context])
		}
	}
	return list, nil
}
