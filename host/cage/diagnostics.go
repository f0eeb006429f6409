package cage

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// Diagnostics is the table [diagnostics] of a configuration: how the movement of
// weights between the cells of their quantizer is sampled.
type Diagnostics struct {
	Every       int   // steps between samples; 0: off
	Coordinates int   // number of coordinates followed, over all tensors
	Window      int   // number of samples that a record looks at
	Seed        int64 // seed for choosing the coordinates
	Tensors     bool  // whether records hold numbers of each tensor
}

// Keys returns the keys of the table.
func (s *Diagnostics) Keys() []schema.Key {
	return []schema.Key{
		{Name: "every", To: &s.Every, Is: schema.From(0, schema.Most), Common: true, Default: 0,
			Doc: "steps between samples, each of which costs one more quantization of the weights and a pass over the samples in the window; 0: none are taken"},
		{Name: "coordinates", To: &s.Coordinates, Is: schema.From(1, 1<<22), Default: 4096,
			Doc: "coordinates followed, a random choice among all quantized weights"},
		{Name: "window", To: &s.Window, Is: schema.From(2, 1<<16), Default: 32,
			Doc: "samples over which dwell times and coherence are taken; independent residuals have a coherence of about 1/√window"},
		{Name: "seed", To: &s.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
			Doc: "seed of the choice of coordinates"},
		{Name: "tensors", To: &s.Tensors, Default: false,
			Doc: "record for each tensor the norm of its gradient, its learning rate and, where it is quantized, its relative error"},
	}
}

// Tracker follows a fixed set of coordinates, divided into groups, one for each weight,
// through samples taken at equal distances. Its unit of time is the sample. It keeps the
// most recent samples, the window. Of older ones it knows only how long the visits that
// are still going on have lasted, and the sums of residuals over them. So the measures do
// not depend on how often a run was stopped and resumed.
//
// A visit is a period in which a code is unchanged (Eq. 7, with codes in place of values,
// as the paper defines it for scales that move). The visit of a coordinate lasts as long
// as its own code is unchanged, the vector visit of a group as long as all codes of the
// group are.
type Tracker struct {
	window  int
	groups  []span
	samples int      // in all
	rows    []sample // the last ones, oldest first, at most window

	begun []int32 // visits of each coordinate since the first sample
	// Of the visits to which the oldest kept sample belongs: the number of the sample
	// at which each began, and the sum of the residuals before the oldest sample.
	since      []int32 // of each coordinate
	groupSince []int32
	before     []float64 // of the group's vector visit, by coordinate
}

// span is the range of a group's coordinates.
type span struct{ from, to int }

// sample is what was read at one moment.
type sample struct {
	codes     []int32
	residuals []float32
}

// NewTracker makes a tracker of groups with the given numbers of coordinates. The window is the
// number of samples that the measures look at, at least 2.
func NewTracker(window int, groups ...int) (*Tracker, error) {
	if window < 2 {
		return nil, fmt.Errorf("diagnostics: a window of %d samples, want at least 2", window)
	}
	if len(groups) == 0 {
		return nil, errors.New("diagnostics: no group of coordinates")
	}
	t := &Tracker{window: window}
	n := 0
	for i, size := range groups {
		if size < 1 {
			return nil, fmt.Errorf("diagnostics: group %d has %d coordinates, want at least 1", i, size)
		}
		t.groups = append(t.groups, span{n, n + size})
		n += size
	}
	t.begun, t.since = make([]int32, n), make([]int32, n)
	t.groupSince, t.before = make([]int32, len(groups)), make([]float64, n)
	return t, nil
}

// Coordinates returns the number of coordinates that are followed.
func (t *Tracker) Coordinates() int { return len(t.since) }

// Samples returns the number of samples since the beginning.
func (t *Tracker) Samples() int { return t.samples }

// Full reports whether there have been as many samples as the window holds. Before that,
// coherence is larger only because there are fewer residuals.
func (t *Tracker) Full() bool { return len(t.rows) == t.window }

// Add takes the next sample: the code and the residual of every coordinate, group
// after group. The slices are copied.
func (t *Tracker) Add(codes []int32, residuals []float32) error {
	if n := t.Coordinates(); len(codes) != n || len(residuals) != n {
		return fmt.Errorf("diagnostics: a sample of %d codes and %d residuals of %d coordinates", len(codes), len(residuals), n)
	}
	t.rows = append(t.rows, sample{slices.Clone(codes), slices.Clone(residuals)})
	t.samples++
	last := t.rows[len(t.rows)-1]
	for i, c := range last.codes {
		if len(t.rows) == 1 || t.rows[len(t.rows)-2].codes[i] != c {
			t.begun[i]++
		}
	}
	if len(t.rows) > t.window {
		t.dropOldest()
	}
	return nil
}

// dropOldest drops the oldest sample, and keeps what it adds to visits that continue.
func (t *Tracker) dropOldest() {
	gone, oldest := t.rows[0], t.rows[1]
	now := int32(t.samples - len(t.rows) + 1) // the number of the sample that is the oldest now
	for i := range gone.codes {
		if gone.codes[i] != oldest.codes[i] {
			t.since[i] = now
		}
	}
	for g, group := range t.groups {
		if codesChanged(group, gone, oldest) {
			t.groupSince[g] = now
			clear(t.before[group.from:group.to])
			continue
		}
		for i := group.from; i < group.to; i++ {
			t.before[i] += float64(gone.residuals[i])
		}
	}
	copy(t.rows, t.rows[1:])
	t.rows = t.rows[:len(t.rows)-1]
}

func codesChanged(group span, a, b sample) bool {
	return !slices.Equal(a.codes[group.from:group.to], b.codes[group.from:group.to])
}

func (t *Tracker) first() int { return t.samples - len(t.rows) }

// TrackerState is everything that a tracker remembers, for a checkpoint.
type TrackerState struct {
	Samples int // since the beginning
	// Codes and Residuals are the samples in the window, oldest first, each of shape
	// [samples, coordinates].
	Codes     []int32
	Residuals []float32
	// Begun is the number of visits so far, and Since the sample at which the visit of
	// the oldest kept sample began, both by coordinate. GroupSince is the same as Since
	// for the vector visit of each group. Before is, by coordinate, the sum of the
	// residuals of that vector visit before the oldest kept sample.
	Begun, Since, GroupSince []int32
	Before                   []float64
}

// State returns a copy of what the tracker remembers.
func (t *Tracker) State() TrackerState {
	s := TrackerState{
		Samples: t.samples,
		Begun:   slices.Clone(t.begun), Since: slices.Clone(t.since),
		GroupSince: slices.Clone(t.groupSince), Before: slices.Clone(t.before),
	}
	for _, row := range t.rows {
		s.Codes, s.Residuals = append(s.Codes, row.codes...), append(s.Residuals, row.residuals...)
	}
	return s
}

// Restore sets the tracker to a state taken from a tracker with the same window and
// groups. Any other state is an error and changes nothing.
func (t *Tracker) Restore(s TrackerState) error {
	n, rows := t.Coordinates(), min(s.Samples, t.window)
	for _, part := range []struct {
		name      string
		got, want int
	}{
		{"codes", len(s.Codes), rows * n}, {"residuals", len(s.Residuals), rows * n},
		{"numbers of visits", len(s.Begun), n}, {"beginnings of visits", len(s.Since), n},
		{"beginnings of vector visits", len(s.GroupSince), len(t.groups)}, {"sums of residuals", len(s.Before), n},
	} {
		if s.Samples < 0 || part.got != part.want {
			return fmt.Errorf("diagnostics: a state of %d samples with %d %s, want %d", s.Samples, part.got, part.name, part.want)
		}
	}
	t.samples, t.rows = s.Samples, nil
	for r := range rows {
		t.rows = append(t.rows, sample{slices.Clone(s.Codes[r*n : (r+1)*n]), slices.Clone(s.Residuals[r*n : (r+1)*n])})
	}
	copy(t.begun, s.Begun)
	copy(t.since, s.Since)
	copy(t.groupSince, s.GroupSince)
	copy(t.before, s.Before)
	return nil
}

// choiceStream is the second half of the generator's seed; it keeps these numbers
// apart from other uses of the same seed.
const choiceStream = 0x63616765_64696167 // "cagediag"

// ChooseCoordinates draws a random subset of the coordinates of tensors of the given sizes: count of
// them in total, or all if there are fewer. Each tensor gets a share in proportion to its
// size, so that a mean over the chosen coordinates estimates the mean over all. A tensor
// whose share is below one coordinate may get none. The positions in each tensor are
// ascending and determined by the seed alone.
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
		chosen[i] = subset(rng, n, size)
		before += size
	}
	return chosen
}

// share is ⌊count·part/total⌋.
func share(count, part, total int) int {
	hi, lo := bits.Mul64(uint64(count), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(total))
	return int(quotient)
}

// subset draws count of the numbers below size, all subsets with the same chance, by
// Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987).
func subset(rng rand.Source, count, size int) []int32 {
	taken := make(map[int32]bool, count)
	list := make([]int32, 0, count)
	for j := size - count; j < size; j++ {
		k := int32(below(rng, uint64(j)+1))
		if taken[k] {
			k = int32(j)
		}
		taken[k] = true
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// below returns a number in [0, n): the upper half of a 128-bit product. Its bias is at
// most n/2⁶⁴.
func below(rng rand.Source, n uint64) uint64 {
	hi, _ := bits.Mul64(rng.Uint64(), n)
	return hi
}
