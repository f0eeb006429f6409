package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/shuffle"
)

// WindowsConfig configures the windows of a token file and their order.
type WindowsConfig struct {
	// Context is the number of tokens that the model sees. A window holds one more: tokens
	// 0…Context−1 are inputs, tokens 1…Context targets.
	Context int
	// Batch is the number of windows in a batch.
	Batch int
	// Seed determines the order; epoch k uses Seed + k.
	Seed uint64
}

// Windows draws training batches of windows: contiguous ranges of a token file, across document
// boundaries.
//
// An epoch begins at a random offset o in [0, Context) and consists of the windows that begin at o,
// o+Context, o+2·Context, …: consecutive windows share one token, so that every token of the epoch
// but its first is a target exactly once. The windows are visited in a random order without
// replacement, and an incomplete last batch is dropped. An epoch has ⌊Tokens/Context⌋ − 1 windows,
// as many as fit at any offset, so that batch i depends only on the file, the configuration and i.
//
// It is not safe for concurrent use; several may share a [File].
type Windows struct {
	file    *File
	config  WindowsConfig
	windows uint32 // in an epoch
	batches int64  // in an epoch

	epoch  int64 // of the two fields below, or -1
	offset int
	order  []uint32
}

// tooShort returns the error for a file that has fewer tokens than need.
func tooShort(file *File, need int64, context, batch int) error {
	windows := "one window"
	if batch > 1 {
		windows = fmt.Sprintf("%d windows", batch)
	}
	return fmt.Errorf("token file %s has %d tokens, want at least %d for %s with a context of %d",
		file.Path(), file.Len(), need, windows, context)
}

// NewWindows returns the windows of a file, which must be long enough for one batch.
func NewWindows(file *File, config WindowsConfig) (*Windows, error) {
	if config.Context < 1 || config.Batch < 1 {
		return nil, fmt.Errorf("windows: context %d and batch %d must be at least 1",
			config.Context, config.Batch)
	}
	windows := file.Len()/int64(config.Context) - 1
	if windows < int64(config.Batch) {
		need := (int64(config.Batch) + 1) * int64(config.Context)
		return nil, tooShort(file, need, config.Context, config.Batch)
	}
	if windows > math.MaxUint32 {
		return nil, fmt.Errorf("windows: %s has %d windows of %d tokens, want at most %d: "+
			"use a larger context",
			file.Path(), windows, config.Context, uint32(math.MaxUint32))
	}
	return &Windows{
		file:    file,
		config:  config,
		windows: uint32(windows),
		batches: windows / int64(config.Batch),
		epoch:   -1,
	}, nil
}

// BatchLen returns the number of ids in a batch, Batch × (Context+1).
func (w *Windows) BatchLen() int { return w.config.Batch * (w.config.Context + 1) }

// At fills dst, shaped [Batch, Context+1], with the batch of the given index. Indices begin at 0
// and continue from epoch to epoch.
func (w *Windows) At(index int64, dst []int32) error {
	if epoch := index / w.batches; epoch != w.epoch {
		w.offset, w.order = epochOrder(w.config.Seed, epoch, w.config.Context, w.windows)
		w.epoch = epoch
	}
	first := index % w.batches * int64(w.config.Batch)
	width := w.config.Context + 1
	for row := range w.config.Batch {
		window := int64(w.order[first+int64(row)])
		at := int64(w.offset) + window*int64(w.config.Context)
		if err := w.file.ReadTokens(dst[row*width:(row+1)*width], at); err != nil {
			return err
		}
	}
	return nil
}

// Second halves of the generators' seeds, which separate the random numbers for different uses of
// one seed.
const (
	windowsStream = 0x63616765_64617461 // "cagedata"
	mixtureStream = 0x63616765_6d697874 // "cagemixt"
	rowsStream    = 0x63616765_63686174 // "cagechat"
)

// generator returns the random source for one epoch, or for one group of a mixture: PCG-DXSM, whose
// output math/rand/v2 guarantees. Bounded numbers and shuffles are drawn by [shuffle.Below] and
// [shuffle.Slice].
func generator(seed uint64, epoch int64, stream uint64) *rand.PCG {
	return rand.NewPCG(seed+uint64(epoch), stream)
}

// epochOrder returns the random choices of one epoch: the beginning of its first window, in [0,
// context), and the order of its windows.
func epochOrder(
	seed uint64, epoch int64, context int, windows uint32,
) (offset int, order []uint32) {
	rng := generator(seed, epoch, windowsStream)
	offset = int(shuffle.Below(rng, uint64(context)))
	order = lists.Make(int(windows), func(i int) uint32 { return uint32(i) })
	shuffle.Slice(rng, order)
	return offset, order
}

// Sequential reads a token file from front to back, for evaluation: windows of Context+1 tokens
// that begin at 0, Context, 2·Context, …, so that every token but the first, up to the last full
// window, is a target exactly once. Up to Context−1 tokens at the end are dropped.
//
// It is safe for concurrent use.
type Sequential struct {
	file    *File
	context int
	batch   int
	windows int64
}

// NewSequential returns a reader of batches of the given number of windows. The file must be long
// enough for one window.
func NewSequential(file *File, context, batch int) (*Sequential, error) {
	if context < 1 || batch < 1 {
		return nil, fmt.Errorf("evaluation: context %d and batch %d must be at least 1", context, batch)
	}
	windows := (file.Len() - 1) / int64(context)
	if windows < 1 {
		return nil, tooShort(file, int64(context)+1, context, 1)
	}
	return &Sequential{file: file, context: context, batch: batch, windows: windows}, nil
}

// BatchLen returns the number of ids in a batch, batch × (context+1).
func (s *Sequential) BatchLen() int { return s.batch * (s.context + 1) }

// Batches returns the number of batches, including an incomplete last one.
func (s *Sequential) Batches() int64 {
	return (s.windows + int64(s.batch) - 1) / int64(s.batch)
}

// At fills dst, shaped [batch, context+1], with batch i and returns the number of rows that are
// windows. If the last batch has fewer, its other rows repeat the first, and must not be counted.
// Repeated rows do not change a maximum over the batch, by which quantizers may scale.
func (s *Sequential) At(i int64, dst []int32) (rows int, err error) {
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
