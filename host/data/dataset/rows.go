package dataset

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/cage-qat/cage/internal/shuffle"
)

// RowsConfig configures the packing and the order of documents in [Rows].
type RowsConfig struct {
	// Length is the number of tokens in a row, one less than that of positions. Longer documents are
	// truncated, and left out if none of the remaining tokens counts in the loss.
	Length int
	// Batch is the number of rows in a batch.
	Batch int
	// Epochs is the number of passes over the documents.
	Epochs int
	// Packing selects how documents are packed into rows.
	Packing Packing
	// Seed determines the order of the documents; epoch k uses Seed + k.
	Seed uint64
	// InOrder keeps the documents in the order of the file, for evaluation.
	InOrder bool
}

// Rows makes batches for training on conversations. Each epoch contains every document once, in a
// new order and newly packed into rows. The last batch of an epoch is padded with empty rows.
//
// It is not safe for concurrent use; several may share a [File].
type Rows struct {
	file   *File
	config RowsConfig
	usable []uint32 // documents with loss in the part that fits in a row
	ends   []int64  // cumulative number of steps at the end of each epoch

	epoch  int        // of layout, or -1
	layout [][]uint32 // the documents of each row
	loss   []bool     // of one document
}

// NewRows returns the rows of a file. It packs the documents for every epoch, to count the steps.
func NewRows(file *File, config RowsConfig) (*Rows, error) {
	r := &Rows{file: file, config: config, epoch: -1}
	switch {
	case config.Length < 2 || config.Length > math.MaxInt32:
		return nil, fmt.Errorf("rows of %d tokens, want at least 2", config.Length)
	case config.Batch < 1 || config.Epochs < 1:
		return nil, fmt.Errorf("batches of %d rows and %d epochs, want at least 1",
			config.Batch, config.Epochs)
	case config.Packing != FirstFit && config.Packing != NoPacking:
		return nil, fmt.Errorf("packing %q, want %s or %s", config.Packing, FirstFit, NoPacking)
	}
	r.loss = make([]bool, config.Length)
	for i := range file.Documents() {
		if file.Learned(i, config.Length) {
			r.usable = append(r.usable, uint32(i))
		}
	}
	if len(r.usable) == 0 {
		return nil, fmt.Errorf("token file %s has no document that counts in the loss in its first "+
			"%d tokens, the length of a row", file.Path(), config.Length)
	}
	steps := int64(0)
	for epoch := range config.Epochs {
		if epoch == 0 || config.Packing == FirstFit && !config.InOrder {
			r.startEpoch(epoch)
		}
		steps += int64((len(r.layout) + config.Batch - 1) / config.Batch)
		r.ends = append(r.ends, steps)
	}
	return r, nil
}

// Config returns the configuration of the rows.
func (r *Rows) Config() RowsConfig { return r.config }

func (r *Rows) startEpoch(epoch int) {
	order := slices.Clone(r.usable)
	if !r.config.InOrder {
		shuffle.Slice(generator(r.config.Seed, int64(epoch), rowsStream), order)
	}
	tokens := func(d uint32) int { return r.tokens(int(d)) }
	r.layout = r.config.Packing.pack(order, tokens, r.config.Length)
	r.epoch = epoch
}

// tokens returns how many tokens of a document are used: at most a row.
func (r *Rows) tokens(document int) int { return min(r.file.Tokens(document), r.config.Length) }

// Steps returns the total number of steps of all epochs.
func (r *Rows) Steps() int64 { return r.ends[len(r.ends)-1] }

// LeftOut returns the number of documents none of whose first Length tokens counts in the loss.
func (r *Rows) LeftOut() int { return r.file.Documents() - len(r.usable) }

// At fills rows with the rows of a step from the given row number on, so that the rows of a step
// can be read in several parts. The first step is 0. Targets that count in the loss have the weight
// 1; the last position of each row is padding. At returns the number of nonempty rows.
func (r *Rows) At(step int64, first int, rows []Row) (filled int, err error) {
	epoch := sort.Search(len(r.ends), func(i int) bool { return step < r.ends[i] })
	if epoch != r.epoch {
		r.startEpoch(epoch)
	}
	if epoch > 0 {
		step -= r.ends[epoch-1]
	}
	for i, row := range rows {
		clear(row.Tokens)
		clear(row.weights)
		for i := range row.Segments {
			row.Segments[i] = Padding
		}
		if n := int(step)*r.config.Batch + first + i; n < len(r.layout) {
			filled++
			at := 0
			for segment, d := range r.layout[n] {
				tokens := r.tokens(int(d))
				loss := r.loss[:tokens]
				if err := r.file.ReadDocument(int(d), row.Tokens[at:at+tokens], loss); err != nil {
					return 0, err
				}
				for i := range tokens {
					row.Segments[at+i] = int32(segment)
					if i > 0 && loss[i] {
						row.SetWeight(at+i, 1)
					}
				}
				at += tokens
			}
		}
	}
	return filled, nil
}

// Packing is a way of packing documents into rows.
type Packing string

// Possible values of Packing.
const (
	// FirstFit puts each document, in order, into the first row with enough free positions.
	FirstFit Packing = "first_fit"
	// NoPacking puts every document in a separate row.
	NoPacking Packing = "none"
)

// pack packs documents, in order, into rows of the given number of tokens. None may be longer.
func (p Packing) pack(documents []uint32, tokens func(document uint32) int, length int) [][]uint32 {
	var rows [][]uint32
	if p == NoPacking {
		for i := range documents {
			rows = append(rows, documents[i:i+1])
		}
		return rows
	}
	// free is a tree of the maximal number of free positions in ranges of rows: node i has the
	// children 2i and 2i+1. The first row with enough free positions is found in logarithmic time.
	leaves := 1
	for leaves < len(documents) {
		leaves *= 2
	}
	free := slices.Repeat([]int32{int32(length)}, 2*leaves)
	for _, d := range documents {
		size, node := int32(tokens(d)), 1
		for node < leaves {
			node *= 2
			if free[node] < size {
				node++
			}
		}
		if node-leaves == len(rows) {
			rows = append(rows, nil)
		}
		rows[node-leaves] = append(rows[node-leaves], d)
		free[node] -= size
		for node /= 2; node > 0; node /= 2 {
			free[node] = max(free[2*node], free[2*node+1])
		}
	}
	return rows
}
