package study

import (
	"math"
	"slices"
	"strings"
)

// Prune returns the IDs of cells that need no training because only tables with Best.Spare use
// them, and they do not have the chosen label. results must hold all cells in the order of the
// study.
//
// While the choice for an entry is not known, one cell per replicate waits for it, and the others
// are unneeded. A cell that another table needs is neither unneeded nor waiting.
func (s *Study) Prune(results []Result) (unneeded, waiting map[string]bool) {
	byID := s.needs(results)
	unneeded, waiting = map[string]bool{}, map[string]bool{}
	for id, n := range byID {
		unneeded[id], waiting[id] = n <= unlikely, n == perhaps
	}
	return unneeded, waiting
}

// Undecided returns the IDs of cells that a table may still choose or leave: those that wait, and
// those that are unneeded only as long as another label is the best so far.
func (s *Study) Undecided(results []Result) map[string]bool {
	list := map[string]bool{}
	for id, n := range s.needs(results) {
		list[id] = n == unlikely || n == perhaps
	}
	return list
}

func (s *Study) needs(results []Result) map[string]need {
	var needs []map[int]need // for each table, the need for its cells
	for _, t := range s.Tables {
		needs = append(needs, t.prune(s, results))
	}
	byID := map[string]need{}
	for i, r := range results {
		reported, most := false, never
		for _, table := range needs {
			if n, ok := table[i]; ok {
				reported, most = true, max(most, n)
			}
		}
		if !reported {
			most = needed
		}
		byID[r.Cell.ID] = max(byID[r.Cell.ID], most) // cells may share a run
	}
	for _, c := range s.Cells {
		for from := c.made; from != nil; from = from.made {
			byID[from.ID] = max(byID[from.ID], byID[c.ID])
		}
	}
	return byID
}

// Needed returns the results without those that are unknown and that no table needs. results must
// hold all cells in the order of the study.
func (s *Study) Needed(results []Result) []Result {
	unneeded, _ := s.Prune(results)
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		return unneeded[r.Cell.ID] && !r.HasOutcome()
	})
}

// need says whether a table needs a cell.
type need int

const (
	never    need = iota
	unlikely      // another label is the best so far, or comes first
	perhaps
	needed
)

// prune returns, by index, whether the table needs each of the cells that it reports or chooses by.
func (t *Table) prune(s *Study, results []Result) map[int]need {
	out := map[int]need{}
	if t.Best == nil || !t.Best.Spare {
		for i, r := range results {
			if r.Cell.Matches(t.Where) {
				out[i] = needed
			}
		}
		return out
	}
	fixed := s.OtherAxes(t.Over, []string{t.Best.Axis}) // they identify an entry
	entries := map[string][]int{}                       // indices of results
	for i, r := range results {
		if r.Cell.Matches(t.Where) {
			key := strings.Join(r.Cell.Of(fixed), "\x1f")
			entries[key] = append(entries[key], i)
		}
	}
	axis, _ := s.Axis(t.Best.Axis)
	for _, entry := range entries {
		list, best := t.Best.Choose(axis.Labels, func(label string) (of []Result) {
			for _, i := range entry {
				if results[i].Cell.Labels[t.Best.Axis] == label {
					of = append(of, results[i])
				}
			}
			return of
		})
		open := map[string]bool{} // labels that have not been tried
		for _, c := range list {
			if !c.Tried {
				open[c.Label] = true
			}
		}
		for _, i := range entry {
			label := results[i].Cell.Labels[t.Best.Axis]
			switch {
			case results[i].Cell.Matches(t.Best.On):
				out[i] = needed
			case len(list) > 0 && label == list[max(0, best)].Label: // the best so far, or the first one
				switch {
				case len(open) > 0:
					out[i] = perhaps
				case best >= 0:
					out[i] = needed
				default: // all diverged
					out[i] = never
				}
			case open[label]:
				out[i] = unlikely
			default:
				out[i] = never
			}
		}
	}
	return out
}

// Candidate is a label of the axis from which the best label is chosen.
type Candidate struct {
	Label string
	Tried bool // all replicates that choose have a value
}

// Choose returns the labels that have replicates to choose on, and the index of the tried label
// with the best mean, or −1 if no mean is known and finite. at returns the results with a label.
func (b *Best) Choose(
	labels []string, at func(label string) []Result,
) (list []Candidate, best int) {
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

// Pick returns the index of the best mean, the first if several are equal, or −1 if none is finite.
// See [Better] for the direction.
func Pick(better string, means []float64) int {
	best := -1
	for i, mean := range means {
		finite := !math.IsNaN(mean) && !math.IsInf(mean, 0)
		if finite && (best < 0 || Better(better, mean, means[best])) {
			best = i
		}
	}
	return best
}

// Better reports whether a is better than b: greater if the direction is "higher", otherwise less.
// The other direction is usually written "lower".
func Better(direction string, a, b float64) bool {
	if direction == "higher" {
		return a > b
	}
	return a < b
}

// Value returns the value of a metric; ok is false if there is none. If the run diverged, metrics
// that it does not have are NaN.
func (r Result) Value(metric string) (v float64, ok bool) {
	if v, ok = r.Summary[metric]; !ok && r.Diverged {
		return math.NaN(), true
	}
	return v, ok
}
