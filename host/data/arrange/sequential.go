package arrange

import (
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
)

// Sequential reads a token file from front to back, for evaluation: windows of
// Context+1 tokens that begin at 0, Context, 2·Context, …, so that every token
// but the first, up to the last full window, is a target exactly once. Up to
// Context−1 tokens at the end are left out.
//
// It is safe for concurrent use.
type Sequential struct {
	file    *dataset.File
	context int
	batch   int
	windows int64
}

// NewSequential returns a reader of batches of batch windows. A file that is
// too short for one window is a [*ShortError].
func NewSequential(file *dataset.File, context, batch int) (*Sequential, error) {
	if context < 1 || batch < 1 {
		return nil, fmt.Errorf("evaluation: context %d and batch %d must be at least 1", context, batch)
	}
	windows := (file.Len() - 1) / int64(context)
	if windows < 1 {
		return nil, &ShortError{file.Path(), file.Len(), int64(context) + 1, context, 1}
	}
	return &Sequential{file: file, context: context, batch: batch, windows: windows}, nil
}

// BatchLen returns the number of ids in a batch, batch × (context+1).
func (s *Sequential) BatchLen() int { return s.batch * (s.context + 1) }

// Batches returns the number of batches, including a last one that is not full.
func (s *Sequential) Batches() int64 {
	return (s.windows + int64(s.batch) - 1) / int64(s.batch)
}

// At fills dst, shaped [batch, context+1], with batch i and returns how many of its rows
// are windows: all of them, except perhaps in the last batch. The other rows there repeat
// its first and must not count. Because they do, a maximum over the whole batch, by which
// quantizers may scale, is the maximum over its windows.
func (s *Sequential) At(i int64, dst []int32) (rows int, err error) {
	if i < 0 || i >= s.Batches() {
		return 0, fmt.Errorf("evaluation: batch %d asked for, %s has %d", i, s.file.Path(), s.Batches())
	}
	if len(dst) != s.BatchLen() {
		return 0, fmt.Errorf("evaluation: room for %d ids, a batch has %d × %d", len(dst), s.batch, s.context+1)
	}
	first := i * int64(s.batch)
	rows = int(min(int64(s.batch), s.windows-first))
	width := s.context + 1
	for row := range rows {
		at := (first + int64(row)) * int64(s.context)
		if err := s.file.ReadTokens(dst[row*width:(row+1)*width], at); err != nil {
			return 0, err
		}
	}
	for row := rows; row < s.batch; row++ {
		copy(dst[row*width:(row+1)*width], dst[:width])
	}
	return rows, nil
}
