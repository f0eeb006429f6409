package cage

import (
	"maps"
	"math"
	"slices"
)

// Measures describes the coordinates of one group, or of all groups, over the samples in
// the window. If a residual is not finite, the measures of residuals are NaN.
type Measures struct {
	Coordinates int
	// FlipRate is the fraction of coordinates whose code differs from the previous sample; 0 at the
	// first sample.
	FlipRate float64
	// Coherence is the mean over coordinates of |Σe| / Σ|e|, and VectorCoherence is ‖Σe‖₂
	// / Σ‖e‖₂; a ratio is 0 if its denominator is. It is 1 for residuals that add up,
	// about 1/√W for W independent ones with mean 0, and 0 for residuals that cancel.
	Coherence, VectorCoherence float64
	// Dwell holds the durations of the coordinates' visits that overlap the window, each from its
	// true beginning to its end or, if it has not ended, to the last sample. VectorDwell holds the
	// durations of the vector visits of groups.
	Dwell, VectorDwell Lengths
	// Visits is the mean over coordinates of the number of visits since the first sample.
	Visits float64
	// VisitSum is the largest ‖E_k‖₂ = ‖Σe‖₂ over the vector visits in VectorDwell (Eq. 8). Residual
	// is the largest ‖e‖₂ of a group in the window: B in the bound ‖E_k‖ ≤ B·L of Eq. 11.
	VisitSum, Residual float64
}

// Measure returns the measures of all coordinates together, and of each group.
func (t *Tracker) Measure() (all Measures, groups []Measures) {
	rows := t.rows()
	if rows == 0 {
		return Measures{}, make([]Measures, len(t.groups))
	}
	total := newSums(rows)
	for g := range t.groups {
		s := t.sumsOf(g)
		groups = append(groups, s.measures())
		total.coordinates += s.coordinates
		total.flips, total.begun = total.flips+s.flips, total.begun+s.begun
		total.coherence, total.sum2 = total.coherence+s.coherence, total.sum2+s.sum2
		for i, v := range s.norm2 {
			total.norm2[i] += v
		}
		total.dwell.merge(s.dwell)
		total.vectorDwell.merge(s.vectorDwell)
		total.visitSum = max(total.visitSum, s.visitSum)
		total.residual = max(total.residual, s.residual)
	}
	return total.measures(), groups
}

type sums struct {
	coordinates, flips, begun int
	coherence                 float64   // Σ over coordinates
	sum2                      float64   // ‖Σe‖²
	norm2                     []float64 // ‖e‖² of each sample in the window
	dwell, vectorDwell        Lengths
	visitSum, residual        float64
}

func newSums(rows int) *sums {
	return &sums{norm2: make([]float64, rows), dwell: Lengths{}, vectorDwell: Lengths{}}
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

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// sumsOf computes sums over the window for group g: of its residuals, of its coordinates' visits
// and of its vector visits.
func (t *Tracker) sumsOf(g int) *sums {
	group, rows, n := t.groups[g], t.rows(), t.Coordinates()
	s := newSums(rows)
	s.coordinates = group.to - group.from
	first := t.s.Samples - rows // index of the oldest sample in the window
	for i := group.from; i < group.to; i++ {
		sum, absolute, began := 0.0, 0.0, int(t.s.Since[i])
		for r := range rows {
			e := float64(t.s.Residuals[r*n+i])
			sum, absolute = sum+e, absolute+math.Abs(e)
			s.norm2[r] += e * e
			if r == 0 || t.s.Codes[r*n+i] == t.s.Codes[(r-1)*n+i] {
				continue
			}
			s.dwell[first+r-began]++
			began = first + r
			if r == rows-1 {
				s.flips++
			}
		}
		s.begun += int(t.s.Begun[i])
		s.dwell[t.s.Samples-began]++
		s.coherence += ratio(math.Abs(sum), absolute)
		s.sum2 += sum * sum
	}
	for _, v := range s.norm2 {
		s.residual = max(s.residual, math.Sqrt(v))
	}
	began, sum := int(t.s.GroupSince[g]), slices.Clone(t.s.Before[group.from:group.to])
	end := func(now int) {
		s.vectorDwell[now-began]++
		norm2 := 0.0
		for _, x := range sum {
			norm2 += x * x
		}
		s.visitSum = max(s.visitSum, math.Sqrt(norm2))
		began = now
		clear(sum)
	}
	for r := range rows {
		if r > 0 && t.changed(group, r) {
			end(first + r)
		}
		for i, e := range t.s.Residuals[r*n:][group.from:group.to] {
			sum[i] += float64(e)
		}
	}
	end(t.s.Samples)
	return s
}

// Lengths is the distribution of the durations of visits (dwell times τ_{k+1} − τ_k), in samples:
// the number of visits by length.
type Lengths map[int]int

func (l Lengths) merge(other Lengths) {
	for length, visits := range other {
		l[length] += visits
	}
}

// sums returns the number of visits, and the sum of their lengths.
func (l Lengths) sums() (visits, total int) {
	for length, n := range l {
		visits += n
		total += length * n
	}
	return visits, total
}

// Mean returns the mean length; 0 if there are no visits.
func (l Lengths) Mean() float64 {
	visits, total := l.sums()
	return ratio(float64(total), float64(visits))
}

// Max returns the largest length, L_max of Eq. 9; 0 if there are no visits.
func (l Lengths) Max() int { return l.Quantile(1) }

// Quantile returns the smallest length that at least the fraction p of all visits does
// not exceed; p is clipped to [0, 1]. It is 0 if there are no visits.
func (l Lengths) Quantile(p float64) int {
	visits, _ := l.sums()
	rank := max(1, min(p, 1)*float64(visits))
	seen := 0
	for _, length := range slices.Sorted(maps.Keys(l)) {
		seen += l[length]
		if float64(seen) >= rank {
			return length
		}
	}
	return 0
}
