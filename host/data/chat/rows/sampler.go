package rows

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/cage-qat/cage/internal/shuffle"
)

// Config says how a [Sampler] arranges and orders documents.
type Config struct {
	// Length is the number of tokens in a row. Longer documents are cut to it; those that
	// then have nothing to learn from are left out.
	Length int
	// Batch is the number of rows in a step.
	Batch int
	// Epochs is how many times every document is used.
	Epochs int
	// Packing says how documents are put into rows.
	Packing Packing
	// Seed fixes the order of the documents; epoch k uses Seed + k.
	Seed uint64
	// InOrder keeps the documents in the order of the file, for evaluation.
	InOrder bool
}

// Row is one row of a batch; its slices have the same length.
type Row struct {
	// Tokens are the tokens of the documents; 0 in places without a document.
	Tokens []int32
	// Positions count from 0 in each document.
	Positions []int32
	// Segments number the documents from 0; -1 in places without a document.
	Segments []int32
	// Weights are the weights of the losses. The token at a place predicts the one at the
	// next place, with weight 1 if that belongs to the same document and carries loss,
	// and otherwise 0.
	Weights []float32
}

// NoDocument is the segment of places without a document.
const NoDocument = -1

// NewRow returns an empty row.
func NewRow(length int) Row {
	r := Row{make([]int32, length), make([]int32, length), make([]int32, length), make([]float32, length)}
	r.clear()
	return r
}

func (r Row) clear() {
	clear(r.Tokens)
	clear(r.Positions)
	clear(r.Weights)
	for i := range r.Segments {
		r.Segments[i] = NoDocument
	}
}

// Sampler makes the batches of a training. In each epoch every document comes once, in an
// order specific to that epoch, and rows are arranged anew. The last batch of an epoch
// has the rows that are left; its other rows are empty.
//
// A sampler is not safe for concurrent use; samplers may share a [File].
type Sampler struct {
	file   *File
	config Config
	usable []uint32 // documents that have something to learn
	ends   []int64  // the number of steps up to the end of each epoch

	epoch  int // of layout, or -1
	layout *layout
	loss   []bool // of one document
}

// NewSampler returns a sampler. It arranges every epoch once, to count the steps.
func NewSampler(file *File, config Config) (*Sampler, error) {
	s := &Sampler{file: file, config: config, epoch: -1}
	switch {
	case config.Length < 2 || config.Length > math.MaxInt32:
		return nil, fmt.Errorf("rows of %d tokens, want at least 2", config.Length)
	case config.Batch < 1 || config.Epochs < 1:
		return nil, fmt.Errorf("batches of %d rows and %d epochs, want at least 1", config.Batch, config.Epochs)
	}
	if err := config.Packing.check(); err != nil {
		return nil, err
	}
	for i := range file.Documents() {
		if file.Learned(i, config.Length) {
			s.usable = append(s.usable, uint32(i))
		}
	}
	if len(s.usable) == 0 {
		return nil, fmt.Errorf("chat file %s has no document with something to learn in its first %d tokens: use longer rows", file.Path(), config.Length)
	}
	steps := int64(0)
	for epoch := range config.Epochs {
		if epoch == 0 || config.Packing == FirstFit && !config.InOrder {
			s.begin(epoch)
		}
		steps += int64((s.layout.rows() + config.Batch - 1) / config.Batch)
		s.ends = append(s.ends, steps)
	}
	return s, nil
}

// Config returns the configuration with which the sampler was made.
func (s *Sampler) Config() Config { return s.config }

// sequence keeps these random numbers apart from other uses of the same seed.
const sequence = 0x63616765_63686174 // "cagechat"

// begin lays out an epoch.
func (s *Sampler) begin(epoch int) {
	order := append([]uint32(nil), s.usable...)
	if !s.config.InOrder {
		shuffle.Slice(rand.NewPCG(s.config.Seed+uint64(epoch), sequence), order)
	}
	s.layout = s.config.Packing.pack(order, func(d uint32) int { return s.tokens(int(d)) }, s.config.Length)
	s.epoch = epoch
}

// tokens is how many of a document's fit into a row.
func (s *Sampler) tokens(document int) int { return min(s.file.Tokens(document), s.config.Length) }

// Steps returns the number of steps in all epochs together.
func (s *Sampler) Steps() int64 { return s.ends[len(s.ends)-1] }

// LeftOut returns the number of documents that have nothing to learn from within the
// length of a row.
func (s *Sampler) LeftOut() int { return s.file.Documents() - len(s.usable) }

// At fills rows with rows of a step, counted from 0, beginning with row number first, so
// that the rows of one step can be read in several parts. It returns how many of them are
// not empty.
func (s *Sampler) At(step int64, first int, rows []Row) (filled int, err error) {
	if step < 0 || step >= s.Steps() {
		return 0, fmt.Errorf("step %d asked for, %s gives %d", step, s.file.Path(), s.Steps())
	}
	if first < 0 || first+len(rows) > s.config.Batch {
		return 0, fmt.Errorf("rows %d to %d asked for, a batch has %d", first, first+len(rows), s.config.Batch)
	}
	epoch := sort.Search(len(s.ends), func(i int) bool { return step < s.ends[i] })
	if epoch != s.epoch {
		s.begin(epoch)
	}
	if epoch > 0 {
		step -= s.ends[epoch-1]
	}
	for i := range rows {
		rows[i].clear()
		if r := int(step)*s.config.Batch + first + i; r < s.layout.rows() {
			filled++
			if err := s.fill(rows[i], s.layout.row(r)); err != nil {
				return 0, err
			}
		}
	}
	return filled, nil
}

// fill writes documents into an empty row.
func (s *Sampler) fill(row Row, documents []uint32) error {
	if len(row.Tokens) != s.config.Length {
		return fmt.Errorf("a row with room for %d tokens, want %d", len(row.Tokens), s.config.Length)
	}
	at := 0
	for segment, d := range documents {
		n := s.tokens(int(d))
		if cap(s.loss) < n {
			s.loss = make([]bool, s.config.Length)
		}
		loss := s.loss[:n]
		if err := s.file.Read(int(d), row.Tokens[at:at+n], loss); err != nil {
			return err
		}
		for i := range n {
			row.Positions[at+i], row.Segments[at+i] = int32(i), int32(segment)
			if i+1 < n && loss[i+1] {
				row.Weights[at+i] = 1
			}
		}
		at += n
	}
	return nil
}
