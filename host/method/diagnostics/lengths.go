package diagnostics

import (
	"iter"
	"maps"
	"slices"
)

// Lengths is the distribution of the lengths of visits (dwell times τ_{k+1} − τ_k), in
// samples. The zero value is empty.
type Lengths struct {
	counts map[int]int // of visits, by length
	visits int
	total  int // of all lengths
}

func (l *Lengths) add(length, visits int) {
	if l.counts == nil {
		l.counts = map[int]int{}
	}
	l.counts[length] += visits
	l.visits += visits
	l.total += length * visits
}

func (l *Lengths) merge(other Lengths) {
	for length, visits := range other.counts {
		l.add(length, visits)
	}
}

// Counts yields the lengths that occur, in ascending order, with the number of visits of
// each.
func (l Lengths) Counts() iter.Seq2[int, int] {
	return func(yield func(length, visits int) bool) {
		for _, length := range slices.Sorted(maps.Keys(l.counts)) {
			if !yield(length, l.counts[length]) {
				return
			}
		}
	}
}

// Mean returns the mean length; 0 if there are no visits.
func (l Lengths) Mean() float64 {
	if l.visits == 0 {
		return 0
	}
	return float64(l.total) / float64(l.visits)
}

// Max returns the largest length, L_max of Eq. 9; 0 if there are no visits.
func (l Lengths) Max() int { return l.Quantile(1) }

// Quantile returns the smallest length that at least the fraction p of all visits does
// not exceed; p is clipped to [0, 1]. It is 0 if there are no visits.
func (l Lengths) Quantile(p float64) int {
	rank := max(1, min(p, 1)*float64(l.visits))
	seen := 0
	for length, visits := range l.Counts() {
		seen += visits
		if float64(seen) >= rank {
			return length
		}
	}
	return 0
}
