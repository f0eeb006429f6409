package cage

import (
	"iter"
	"maps"
	"math"
	"slices"
)

// Measures describes the coordinates of one group, or of all groups, over the samples in
// the window. If a residual is not finite, the measures of residuals are NaN.
type Measures struct {
	Coordinates int
	// FlipRate is the fraction of coordinates whose code differs from that in the
	// previous sample; 0 at the first sample.
	FlipRate float64
	// Coherence is the mean over coordinates of |Σe| / Σ|e|, and VectorCoherence is ‖Σe‖₂
	// / Σ‖e‖₂; a ratio is 0 if its denominator is. It is 1 for residuals that add up,
	// about 1/√W for W independent ones with mean 0, and 0 for residuals that cancel.
	Coherence, VectorCoherence float64
	// Dwell holds the lengths of the coordinates' visits that lie at least partly in the
	// window, each from its true beginning to its end or, if it is still going on, to the
	// last sample. VectorDwell holds those of the vector visits of groups.
	Dwell, VectorDwell Lengths
	// Visits is the mean over coordinates of the number of visits since the first sample.
	Visits float64
	// VisitSum is the largest ‖E_k‖₂ = ‖Σe‖₂ over the vector visits in VectorDwell (Eq.
	// 8). Residual is the largest ‖e‖₂ of a group in the window: B of Eq. 11, which gives
	// the bound ‖E_k‖ ≤ B·L.
	VisitSum, Residual float64
}

// Measure returns the measures of all coordinates together, and of each group.
func (t *Tracker) Measure() (all Measures, groups []Measures) {
	if len(t.rows) == 0 {
		return Measures{}, make([]Measures, len(t.groups))
	}
	total := newSums(len(t.rows))
	for g := range t.groups {
		s := t.sumsOf(g)
		groups = append(groups, s.measures())
		total.merge(s)
	}
	return total.measures(), groups
}

// sums are the additive parts of the measures.
type sums struct {
	coordinates, flips, begun int
	coherence                 float64   // Σ over coordinates
	sum2                      float64   // ‖Σe‖²
	norm2                     []float64 // ‖e‖² of each sample in the window
	dwell, vectorDwell        Lengths
	visitSum, residual        float64
}

func newSums(rows int) *sums { return &sums{norm2: make([]float64, rows)} }

func (s *sums) merge(o *sums) {
	s.coordinates, s.flips, s.begun = s.coordinates+o.coordinates, s.flips+o.flips, s.begun+o.begun
	s.coherence, s.sum2 = s.coherence+o.coherence, s.sum2+o.sum2
	for i, v := range o.norm2 {
		s.norm2[i] += v
	}
	s.dwell.merge(o.dwell)
	s.vectorDwell.merge(o.vectorDwell)
	s.visitSum, s.residual = max(s.visitSum, o.visitSum), max(s.residual, o.residual)
}

func (s *sums) measures() Measures {
	n := float64(s.coordinates)
	norms := 0.0
	for _, v := range s.norm2 {
		norms += math.Sqrt(v)
	}
	return Measures{
		Coordinates: s.coordinates, FlipRate: float64(s.flips) / n, Visits: float64(s.begun) / n,
		Coherence: s.coherence / n, VectorCoherence: ratio(math.Sqrt(s.sum2), norms),
		Dwell: s.dwell, VectorDwell: s.vectorDwell, VisitSum: s.visitSum, Residual: s.residual,
	}
}

// ratio is a/b, and 0 when b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// sumsOf goes through the window of one group.
func (t *Tracker) sumsOf(g int) *sums {
	group := t.groups[g]
	s := newSums(len(t.rows))
	s.coordinates = group.to - group.from
	for _, n := range t.begun[group.from:group.to] {
		s.begun += int(n)
	}
	t.residuals(group, s)
	t.visits(group, s)
	t.vectorVisits(g, s)
	return s
}

// residuals adds up what does not depend on codes.
func (t *Tracker) residuals(group span, s *sums) {
	for i := group.from; i < group.to; i++ {
		sum, absolute := 0.0, 0.0
		for r, row := range t.rows {
			e := float64(row.residuals[i])
			sum, absolute = sum+e, absolute+math.Abs(e)
			s.norm2[r] += e * e
		}
		s.coherence += ratio(math.Abs(sum), absolute)
		s.sum2 += sum * sum
	}
	for _, v := range s.norm2 {
		s.residual = max(s.residual, math.Sqrt(v))
	}
}

// visits counts the flips of the last sample and the visits of coordinates by length.
func (t *Tracker) visits(group span, s *sums) {
	for i := group.from; i < group.to; i++ {
		began := int(t.since[i])
		for r := 1; r < len(t.rows); r++ {
			if t.rows[r].codes[i] == t.rows[r-1].codes[i] {
				continue
			}
			now := t.first() + r
			s.dwell.add(now-began, 1)
			began = now
			if r == len(t.rows)-1 {
				s.flips++
			}
		}
		s.dwell.add(t.samples-began, 1)
	}
}

// vectorVisits counts the visits of a group as a whole by length and finds the largest
// sum of residuals over one of them.
func (t *Tracker) vectorVisits(g int, s *sums) {
	group, began := t.groups[g], int(t.groupSince[g])
	sum := slices.Clone(t.before[group.from:group.to])
	end := func(now int) {
		s.vectorDwell.add(now-began, 1)
		s.visitSum = max(s.visitSum, norm(sum))
		began = now
		clear(sum)
	}
	for r, row := range t.rows {
		if r > 0 && codesChanged(group, t.rows[r-1], row) {
			end(t.first() + r)
		}
		for i, e := range row.residuals[group.from:group.to] {
			sum[i] += float64(e)
		}
	}
	end(t.samples)
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

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
