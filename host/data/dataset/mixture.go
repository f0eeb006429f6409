package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/shuffle"
)

// Weighted is a source of a [Mixture].
type Weighted struct {
	File *File
	// Weight is the source's share of the tokens, relative to the other weights.
	Weight float64
}

// Mixture draws training batches from several token files by weight.
//
// The windows of all batches, row after row, form one sequence. A cycle of 65,536 windows has a
// fixed number from each source, in proportion to its weight, and the windows of each source are
// distributed over the cycle as evenly as possible. Then every group of 64 consecutive windows is
// shuffled by the seed. The windows of one source come in the order of [Windows]: epoch after
// epoch, each with a new permutation.
//
// Batch i depends only on the files, the configuration and i.
//
// A mixture is not safe for concurrent use.
type Mixture struct {
	config   WindowsConfig
	samplers []*Windows // each with batches of one window
	share    []int64    // windows of each source in a cycle
	sources  []uint16   // the source of every window of a cycle, before groups are shuffled
	before   [][]int64  // for each group, the number of each source's preceding windows in this cycle

	group int64 // index of the shuffled group, or -1
	order []uint16
}

const (
	cycleWindows = 1 << 16
	groupWindows = 64
)

// NewMixture returns a mixture. The files must have been made with the same tokenizer, and each
// must be long enough for a window.
func NewMixture(sources []Weighted, config WindowsConfig) (*Mixture, error) {
	m := &Mixture{config: config, group: -1}
	weights := make([]float64, len(sources))
	for i, s := range sources {
		weights[i] = s.Weight
		// Sources get seeds that are far enough apart for any number of epochs.
		own := WindowsConfig{Context: config.Context, Batch: 1, Seed: config.Seed + uint64(i)<<40}
		windows, err := NewWindows(s.File, own)
		if err != nil {
			return nil, err
		}
		m.samplers = append(m.samplers, windows)
	}
	var err error
	if m.share, err = shares(weights, cycleWindows); err != nil {
		return nil, err
	}
	// The windows of each source are spread evenly over a cycle: the next window is always from the
	// source that is furthest behind its share.
	m.sources = make([]uint16, cycleWindows)
	due, count := make([]int64, len(m.share)), make([]int64, len(m.share))
	for i := range m.sources {
		if i%groupWindows == 0 {
			m.before = append(m.before, slices.Clone(count))
		}
		next := 0
		for s := range due {
			if due[s] += m.share[s]; due[s] > due[next] {
				next = s
			}
		}
		due[next] -= cycleWindows
		count[next]++
		m.sources[i] = uint16(next)
	}
	return m, nil
}

// shares divides n in proportion to the weights. It rounds down, and gives the rest to the shares
// with the largest fractions.
func shares(weights []float64, n int64) ([]int64, error) {
	if len(weights) == 0 || len(weights) > math.MaxUint16 {
		return nil, fmt.Errorf("mixture: %d sources, want 1 to %d", len(weights), math.MaxUint16)
	}
	sum := 0.0
	for i, w := range weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("mixture: source %d has the weight %v, want a number above 0", i, w)
		}
		sum += w
	}
	if math.IsInf(sum, 0) {
		return nil, errors.New("mixture: the sum of the weights overflows")
	}
	out := make([]int64, len(weights))
	left, byFraction := n, lists.Range(len(weights))
	for i, w := range weights {
		out[i] = int64(w / sum * float64(n))
		left -= out[i]
	}
	slices.SortStableFunc(byFraction, func(a, b int) int {
		fraction := func(i int) float64 { x := weights[i] / sum * float64(n); return x - math.Floor(x) }
		return cmp.Compare(fraction(b), fraction(a))
	})
	for i := 0; left > 0; i, left = i+1, left-1 {
		out[byFraction[i%len(out)]]++
	}
	for i, share := range out {
		if share == 0 {
			return nil, fmt.Errorf("mixture: source %d has the weight %v of a total of %v, "+
				"less than one window in %d", i, weights[i], sum, n)
		}
	}
	return out, nil
}

// BatchLen returns the number of ids in a batch, Batch × (Context+1).
func (m *Mixture) BatchLen() int { return m.config.Batch * (m.config.Context + 1) }

// At fills dst, shaped [Batch, Context+1], with the batch of the given index, counted from 0.
func (m *Mixture) At(index int64, dst []int32) error {
	width := m.config.Context + 1
	for row := range m.config.Batch {
		window := index*int64(m.config.Batch) + int64(row)
		if group := window / groupWindows; group != m.group {
			m.group, m.order = group, m.shuffled(group)
		}
		at := window % groupWindows
		source := m.order[at]
		// nth is the index of this window among all windows of its source.
		nth := window/cycleWindows*m.share[source] + m.before[window%cycleWindows/groupWindows][source]
		for _, s := range m.order[:at] {
			if s == source {
				nth++
			}
		}
		if err := m.samplers[source].At(nth, dst[row*width:(row+1)*width]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mixture) shuffled(group int64) []uint16 {
	begin := group * groupWindows % cycleWindows
	order := slices.Clone(m.sources[begin : begin+groupWindows])
	shuffle.Slice(generator(m.config.Seed, group, mixtureStream), order)
	return order
}

// Epochs returns the number of epochs of each source in the first batches. It may be called
// concurrently with At.
func (m *Mixture) Epochs(batches int64) []float64 {
	n := batches * int64(m.config.Batch)
	windows := slices.Clone(m.before[n%cycleWindows/groupWindows]) // of each source among the first n
	for _, s := range m.shuffled(n / groupWindows)[:n%groupWindows] {
		windows[s]++
	}
	return lists.Make(len(windows), func(s int) float64 {
		return float64(windows[s]+n/cycleWindows*m.share[s]) / float64(m.samplers[s].windows)
	})
}
