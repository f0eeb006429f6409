package cage

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// Diagnostics is the [diagnostics] table of a configuration. It controls how the weights'
// residuals and changes of code are sampled.
type Diagnostics struct {
	Every       int   // steps between samples; 0: off
	Coordinates int   // number of tracked coordinates, over all tensors
	Window      int   // number of samples that measures are computed over
	Seed        int64 // seed for choosing the coordinates
	Tensors     bool  // whether records have measures of each tensor
}

// Keys returns the keys of the table.
func (s *Diagnostics) Keys() []schema.Key {
	return []schema.Key{
		{Name: "every", To: &s.Every, Is: schema.From(0, schema.Most), Default: 0,
			Doc: "steps between samples, each of which costs one more quantization of the weights " +
				"and a pass over the samples in the window; 0: no samples"},
		{Name: "coordinates", To: &s.Coordinates, Is: schema.From(1, 1<<22), Default: 4096,
			Doc: "coordinates (single weights) that are tracked, a random sample of all quantized weights"},
		{Name: "window", To: &s.Window, Is: schema.From(2, 1<<16), Default: 32,
			Doc: "samples over which dwell times and coherence are computed; " +
				"independent residuals have a coherence of about 1/√window"},
		{Name: "seed", To: &s.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
			Doc: "seed for sampling the coordinates"},
		{Name: "tensors", To: &s.Tensors, Default: false,
			Doc: "record for each tensor the norm of its gradient, its learning rate and, " +
				"where it is quantized, its relative error"},
	}
}

// Tracker tracks a fixed set of coordinates (single weights), grouped by weight matrix. It samples
// them at a fixed interval, its unit of time, and keeps the most recent samples, the window. Of
// older samples it keeps only the durations of the visits that have not ended, and the sums of
// residuals over them. Measures do not depend on how often a run was stopped and resumed.
//
// A visit is a period in which a code is unchanged (Eq. 7, with codes instead of values, as the
// paper defines it for moving scales). The visit of a coordinate lasts as long as its own code is
// unchanged, the vector visit of a group as long as all codes of the group are.
type Tracker struct {
	window int
	groups []span
	s      TrackerState
}

type span struct{ from, to int }

// TrackerState is the state of a tracker, for a checkpoint.
type TrackerState struct {
	Samples int // since the first
	// Codes and Residuals are the samples in the window, oldest first, each of shape
	// [samples, coordinates].
	Codes     []int32
	Residuals []float32
	// Begun holds the number of visits of each coordinate so far, and Since the index of the sample
	// at which the coordinate's visit that includes the oldest sample in the window began.
	// GroupSince is like Since, for the vector visit of each group. Before holds, for each
	// coordinate, the sum of the residuals in that vector visit before the window.
	Begun, Since, GroupSince []int32
	Before                   []float64
}

// NewTracker returns a tracker of groups with the given numbers of coordinates, each at least 1.
// window, at least 2, is the largest number of samples over which measures are computed.
func NewTracker(window int, groups ...int) *Tracker {
	t := &Tracker{window: window}
	n := 0
	for _, size := range groups {
		t.groups = append(t.groups, span{n, n + size})
		n += size
	}
	t.s.Begun, t.s.Since = make([]int32, n), make([]int32, n)
	t.s.GroupSince, t.s.Before = make([]int32, len(groups)), make([]float64, n)
	return t
}

// Coordinates returns the number of tracked coordinates.
func (t *Tracker) Coordinates() int { return len(t.s.Since) }

// Samples returns the number of samples since the first.
func (t *Tracker) Samples() int { return t.s.Samples }

func (t *Tracker) rows() int { return min(t.s.Samples, t.window) }

// Full reports whether the window is full. Until then coherence is biased upwards, because it sums
// fewer residuals.
func (t *Tracker) Full() bool { return t.rows() == t.window }

// Add adds the next sample: the code and the residual of every coordinate, ordered by group. The
// slices are copied.
func (t *Tracker) Add(codes []int32, residuals []float32) {
	n, s := t.Coordinates(), &t.s
	for i, c := range codes {
		if s.Samples == 0 || s.Codes[len(s.Codes)-n+i] != c {
			s.Begun[i]++
		}
	}
	s.Codes, s.Residuals = append(s.Codes, codes...), append(s.Residuals, residuals...)
	s.Samples++
	if s.Samples <= t.window {
		return
	}
	now := int32(s.Samples - t.window) // index of the sample that becomes the oldest
	for i := range n {
		if s.Codes[i] != s.Codes[n+i] {
			s.Since[i] = now
		}
	}
	for g, group := range t.groups {
		if t.changed(group, 1) {
			s.GroupSince[g] = now
			clear(s.Before[group.from:group.to])
			continue
		}
		for i := group.from; i < group.to; i++ {
			s.Before[i] += float64(s.Residuals[i])
		}
	}
	s.Codes, s.Residuals = slices.Delete(s.Codes, 0, n), slices.Delete(s.Residuals, 0, n)
}

func (t *Tracker) changed(group span, row int) bool {
	n := t.Coordinates()
	before, codes := t.s.Codes[(row-1)*n:], t.s.Codes[row*n:]
	return !slices.Equal(before[group.from:group.to], codes[group.from:group.to])
}

// State returns a copy of the tracker's state.
func (t *Tracker) State() TrackerState { return t.s.clone() }

func (s TrackerState) clone() TrackerState {
	s.Codes, s.Residuals = slices.Clone(s.Codes), slices.Clone(s.Residuals)
	s.Begun, s.Since = slices.Clone(s.Begun), slices.Clone(s.Since)
	s.GroupSince, s.Before = slices.Clone(s.GroupSince), slices.Clone(s.Before)
	return s
}

// Restore restores a state saved by a tracker with the same window and groups. If the sizes of the
// state differ, it returns an error and changes nothing.
func (t *Tracker) Restore(s TrackerState) error {
	n, rows := t.Coordinates(), min(s.Samples, t.window)
	for _, part := range []struct {
		name      string
		got, want int
	}{
		{"codes", len(s.Codes), rows * n}, {"residuals", len(s.Residuals), rows * n},
		{"numbers of visits", len(s.Begun), n}, {"beginnings of visits", len(s.Since), n},
		{"beginnings of vector visits", len(s.GroupSince), len(t.groups)},
		{"sums of residuals", len(s.Before), n},
	} {
		if s.Samples < 0 || part.got != part.want {
			return fmt.Errorf("diagnostics: the state of %d samples has %d %s, want %d",
				s.Samples, part.got, part.name, part.want)
		}
	}
	t.s = s.clone()
	return nil
}

// choiceStream is the second half of the generator's seed; it separates this stream from other uses
// of the same seed.
const choiceStream = 0x63616765_64696167 // "cagediag"

// ChooseCoordinates samples a random subset of the coordinates of tensors of the given sizes: count
// in total, or all if there are fewer. Each tensor gets a number in proportion to its size, so that
// a mean over the chosen coordinates estimates the mean over all. A tensor whose share is below one
// coordinate may get none. The indices in each tensor are ascending and determined by the seed
// alone.
func ChooseCoordinates(seed uint64, count int, sizes ...int) [][]int32 {
	total := 0
	for _, size := range sizes {
		total += size
	}
	count = max(0, min(count, total))
	rng := rand.NewPCG(seed, choiceStream)
	chosen := make([][]int32, len(sizes))
	before := 0
	for i, size := range sizes {
		if size == 0 {
			continue
		}
		n := share(count, before+size, total) - share(count, before, total)
		before += size
		// Floyd's algorithm draws every subset with the same probability (Bentley and Floyd, "A
		// sample of brilliance", 1987).
		taken := make(map[int32]bool, n)
		for j := size - n; j < size; j++ {
			upper, _ := bits.Mul64(rng.Uint64(), uint64(j)+1) // uniform in 0 … j
			k := int32(upper)
			if taken[k] {
				k = int32(j)
			}
			taken[k] = true
		}
		chosen[i] = slices.Sorted(maps.Keys(taken))
	}
	return chosen
}

func share(count, part, total int) int {
	hi, lo := bits.Mul64(uint64(count), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(total))
	return int(quotient)
}
