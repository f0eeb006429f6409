package assembly

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/internal/regular"
)

// OpenTexts opens a token file. If path is a file of plain text, it returns the content of that file instead.
func OpenTexts(path string) (tokens Part, text []byte, err error) {
	file, err := data.Open(path)
	if err == nil {
		return file, nil, nil
	}
	if _, ok := errors.AsType[*data.FormatError](err); ok {
		content, readErr := regular.ReadFile(path)
		if readErr == nil && utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
			return nil, content, nil
		}
	}
	return nil, nil, err
}

// Windows draws at most n sequences of context tokens from a part that consists of texts, without repetition, in an
// order that the seed fixes.
func Windows(part Part, context, n int, seed uint64) ([][]int32, error) {
	file, ok := part.(*data.File)
	if !ok {
		return nil, fmt.Errorf("%s holds conversations, of which no windows are drawn", part.Path())
	}
	s, err := data.NewSampler(file, data.SamplerConfig{Context: context, Batch: 1, Seed: seed})
	if err != nil {
		return nil, err
	}
	list := make([][]int32, min(int64(n), file.Len()/int64(context)-1)) // as many as an epoch has
	for i := range list {
		window := make([]int32, s.BatchLen())
		if err := s.At(int64(i), window); err != nil {
			return nil, err
		}
		list[i] = window[:context]
	}
	return list, nil
}

// CutWindows is [Windows] for the tokens of one text.
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
