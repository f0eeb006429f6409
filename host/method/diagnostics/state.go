package diagnostics

import (
	"fmt"
	"slices"
)

// State is everything that a tracker remembers, for a checkpoint.
type State struct {
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
func (t *Tracker) State() State {
	s := State{
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
func (t *Tracker) Restore(s State) error {
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
