package main

import "slices"

// solver finds the best codebooks of groups, one after the other.
type solver struct {
	sorted        []float32
	sums, squares []float64 // of the entries before each place, about the middle one
	cost, next    []float64 // of the first j entries with the levels so far, and with one more
	first         [][]int32 // of each level: where its part of the first j entries begins
	middle        float64
}

// newSolver is for groups of at most size entries.
func newSolver(size, levels int) *solver {
	s := &solver{sorted: make([]float32, size), sums: make([]float64, size+1),
		squares: make([]float64, size+1), cost: make([]float64, size+1), next: make([]float64, size+1)}
	for range levels {
		s.first = append(s.first, make([]int32, size+1))
	}
	return s
}

// solve sets levels, in increasing order, to those that minimize the sum of the squared distances
// between each entry and its nearest level. If there are fewer entries than levels, the last levels
// are all equal to the largest entry.
func (s *solver) solve(x, levels []float32) {
	n := copy(s.sorted, x)
	sorted := s.sorted[:n]
	slices.Sort(sorted)
	s.middle = float64(sorted[n/2]) // otherwise squares of close entries would cancel
	for i, v := range sorted {
		d := float64(v) - s.middle
		s.sums[i+1], s.squares[i+1] = s.sums[i]+d, s.squares[i]+d*d
	}
	used := min(n, len(levels))
	for j := 1; j <= n; j++ {
		s.cost[j], s.first[0][j] = s.spread(0, j), 0
	}
	for k := 1; k < used; k++ {
		s.fill(s.first[k], k+1, n, k, n-1)
		s.cost, s.next = s.next, s.cost
	}
	end := n
	for k := used - 1; k >= 0; k-- {
		from := int(s.first[k][end])
		levels[k] = float32(s.middle + (s.sums[end]-s.sums[from])/float64(end-from))
		end = from
	}
	for k := used; k < len(levels); k++ {
		levels[k] = levels[used-1]
	}
}

// spread is the sum of the squared distances of the entries from, …, to − 1 to their mean.
func (s *solver) spread(from, to int) float64 {
	sum := s.sums[to] - s.sums[from]
	return max(0, s.squares[to]-s.squares[from]-sum*sum/float64(to-from))
}

// fill computes, for each j in low ≤ j ≤ high, the smallest cost of the first j entries with one
// more level than before. The entries of the new level begin at an index from least to most. The
// best such index does not decrease as j grows, so that fill computes the middle j and then each
// half within narrower bounds.
func (s *solver) fill(first []int32, low, high, least, most int) {
	if low > high {
		return
	}
	j := (low + high) / 2
	best, at := -1.0, least
	for i := least; i <= min(most, j-1); i++ {
		if c := s.cost[i] + s.spread(i, j); best < 0 || c < best {
			best, at = c, i
		}
	}
	s.next[j], first[j] = best, int32(at)
	s.fill(first, low, j-1, least, at)
	s.fill(first, j+1, high, at, most)
}
