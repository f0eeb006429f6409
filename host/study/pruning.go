package study

import (
	"math"
	"slices"
	"strings"
)

// Prune returns which cells need no training because of tables whose Best has Spare: the runs that
// would be reported with another label than the chosen one. Results are of all cells, in the order
// of the study.
//
// While the choice for an entry is not known yet, one cell for each replicate waits for it, and the
// rest are spared. A cell that some other table needs is neither spared nor waiting.
func (s *Study) Prune(results []Result) (spared, waiting map[string]bool) {
	var uses []map[int]use // for each such table, the uses of the cells that it reports
	for _, t := range s.Tables {
		if t.Best != nil && t.Best.Spare {
			uses = append(uses, t.prune(s, results))
		}
	}
	of := map[string]use{}
	for i, r := range results {
		said, least := false, left
		for _, u := range uses {
			if x, ok := u[i]; ok {
				said, least = true, min(least, x)
			}
		}
		if !said {
			least = needed
		}
		if old, again := of[r.Cell.ID]; again { // cells may share a run
			least = min(least, old)
		}
		of[r.Cell.ID] = least
	}
	for _, c := range s.Cells {
		for from := s.madeOf(c); from != nil; from = s.madeOf(*from) {
			of[from.ID] = min(of[from.ID], of[c.ID])
		}
	}
	spared, waiting = map[string]bool{}, map[string]bool{}
	for id, u := range of {
		spared[id], waiting[id] = u == left, u == waits
	}
	return spared, waiting
}

// Wanted filters results, which are of all cells in the order of the study: it drops those that are
// unknown and that no table needs.
func (s *Study) Wanted(results []Result) []Result {
	spared, _ := s.Prune(results)
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return spared[r.Cell.ID] && !r.Known() })
}

// use is a table's need for a cell.
type use int

const (
	needed use = iota
	waits      // it may turn out to be needed
	left       // not needed
)

// prune returns the table's use of each cell that it reports, by the cell's index.
func (t *Table) prune(s *Study, results []Result) map[int]use {
	var fixed []string // the axes that identify an entry
	for _, name := range s.AxisNames() {
		if name != t.Best.Axis && !slices.Contains(t.Over, name) {
			fixed = append(fixed, name)
		}
	}
	places := map[string][]int{}
	for i, r := range results {
		if r.Cell.Matches(t.Where) {
			key := strings.Join(r.Cell.Of(fixed), "\x1f")
			places[key] = append(places[key], i)
		}
	}
	axis, _ := s.Axis(t.Best.Axis)
	out := map[int]use{}
	for _, place := range places {
		list, best := t.Best.Choose(axis.Labels, func(label string) (of []Result) {
			for _, i := range place {
				if results[i].Cell.Labels[t.Best.Axis] == label {
					of = append(of, results[i])
				}
			}
			return of
		})
		decided := best >= 0 && !slices.ContainsFunc(list, func(c Candidate) bool { return !c.Tried })
		for _, i := range place {
			label := results[i].Cell.Labels[t.Best.Axis]
			switch {
			case results[i].Cell.Matches(t.Best.On):
			case len(list) == 0 || label != list[max(0, best)].Label:
				out[i] = left
			case decided:
				out[i] = needed
			default: // the choice is open: the best so far, or the first one
				out[i] = waits
			}
		}
	}
	return out
}

// Candidate is a label of the axis on which the best label is chosen.
type Candidate struct {
	Label string
	Tried bool // all replicates that choose have a value
}

// Choose returns the labels that have replicates to choose on, and the index of the best of those
// that are tried, or −1 if none is, or none has a finite mean. at returns the results with a label.
func (b *Best) Choose(labels []string, at func(label string) []Result) (list []Candidate, best int) {
	var means []float64
	for _, label := range labels {
		var x []float64
		planned := 0
		for _, r := range at(label) {
			if !r.Cell.Matches(b.On) {
				continue
			}
			planned++
			if v, ok := r.Value(b.Metric); ok {
				x = append(x, v)
			}
		}
		if planned == 0 {
			continue
		}
		c, mean := Candidate{label, len(x) == planned}, math.NaN()
		if c.Tried {
			mean = Describe(x).Mean
		}
		list, means = append(list, c), append(means, mean)
	}
	return list, Pick(b.Better, means)
}

// Pick returns the index of the best of the means, the first of equal ones; −1 if none is finite.
// See [Better] for the direction.
func Pick(better string, means []float64) int {
	best := -1
	for i, mean := range means {
		if !math.IsNaN(mean) && !math.IsInf(mean, 0) && (best < 0 || Better(better, mean, means[best])) {
			best = i
		}
	}
	return best
}

// Better reports whether a is better than b: greater if the direction is "higher", less if it is
// anything else, usually "lower".
func Better(direction string, a, b float64) bool {
	if direction == "higher" {
		return a > b
	}
	return a < b
}

// Value returns the value of a metric, and whether it has one. It is NaN if the run diverged.
func (r Result) Value(metric string) (v float64, ok bool) {
	if r.Diverged {
		return math.NaN(), true
	}
	v, ok = r.Summary[metric]
	return v, ok
}
