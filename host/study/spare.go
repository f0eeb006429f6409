package study

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Spare says which cells need no training because of tables whose best has Spare: the runs that
// would be reported with another label than the chosen one. Results are those of all cells, in the
// order of the study.
//
// A place whose choice is not known yet has one cell for each replicate that waits for it; the
// others are spared until then. A cell that some table wants all the same is neither.
func (s *Study) Spare(results []Result) (spared, waiting map[string]bool) {
	var uses []map[int]use // what each such table says of the cells that it reports
	for _, t := range s.Tables {
		if t.Best != nil && t.Best.Spare {
			uses = append(uses, t.spare(s, results))
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

// Wanted are the results, of all cells in the order of the study, without those that nothing needs
// and that are not known.
func (s *Study) Wanted(results []Result) []Result {
	spared, _ := s.Spare(results)
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return spared[r.Cell.ID] && !r.Known() })
}

// use is what a table wants of a cell.
type use int

const (
	needed use = iota
	waits      // it may turn out to be needed
	left       // left out
)

// spare says what the table wants of the cells that it reports, by their index.
func (t *Table) spare(s *Study, results []Result) map[int]use {
	var fixed []string // the axes that tell places apart
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
		soFar, chosen := t.Best.choose(axis.Labels, results, place)
		for _, i := range place {
			label := results[i].Cell.Labels[t.Best.Axis]
			switch {
			case results[i].Cell.Matches(t.Best.On):
			case chosen == "" && label == soFar:
				out[i] = waits
			case label == chosen:
				out[i] = needed
			default:
				out[i] = left
			}
		}
	}
	return out
}

// choose returns the chosen label of a place: as a report chooses it, once all labels are tried,
// and "" before. So far is the one that is the best of those that are tried, and the first one
// where none is.
func (b *Best) choose(labels []string, results []Result, place []int) (soFar, chosen string) {
	var tried []string
	var means []float64
	untried, first := false, ""
	for _, label := range labels {
		var x []float64
		planned := 0
		for _, i := range place {
			r := results[i]
			if r.Cell.Labels[b.Axis] != label || !r.Cell.Matches(b.On) {
				continue
			}
			planned++
			if v, ok := r.Value(b.Metric); ok {
				x = append(x, v)
			}
		}
		switch {
		case planned == 0:
			continue
		case len(x) < planned:
			untried = true
		default:
			tried, means = append(tried, label), append(means, Describe(x).Mean)
		}
		first = cmp.Or(first, label)
	}
	if best := Pick(b.Better, means); best >= 0 {
		chosen = tried[best]
	}
	soFar = cmp.Or(chosen, first)
	if untried {
		chosen = ""
	}
	return soFar, chosen
}

// Pick returns the place of the best of the means, the first of equal ones; −1 if none is finite.
// Better is a direction: see [Better].
func Pick(better string, means []float64) int {
	best := -1
	for i, mean := range means {
		if !math.IsNaN(mean) && !math.IsInf(mean, 0) && (best < 0 || Better(better, mean, means[best])) {
			best = i
		}
	}
	return best
}

// Better reports whether a is better than b in a direction: "higher", or "lower", which anything
// else is, too.
func Better(direction string, a, b float64) bool {
	if direction == "higher" {
		return a > b
	}
	return a < b
}

// Value is the value of a metric, and whether there is one. That of a run that diverged is NaN.
func (r Result) Value(metric string) (v float64, ok bool) {
	if r.Diverged {
		return math.NaN(), true
	}
	v, ok = r.Summary[metric]
	return v, ok
}
