package study

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Spare says which cells need no training because of tables whose best has Spare: the runs that would be reported with
// another label than the chosen one. Results are those of all cells, in the order of the study.
//
// A place whose choice is not known yet has one cell for each replicate that waits for it; the others are spared until
// then. A cell that some table wants all the same is neither.
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
		if c.Quantize != nil && c.Quantize.Of == OfFullPrecision {
			of[s.Cells[c.from].ID] = min(of[s.Cells[c.from].ID], of[c.ID])
		}
	}
	spared, waiting = map[string]bool{}, map[string]bool{}
	for id, u := range of {
		spared[id], waiting[id] = u == left, u == waits
	}
	return spared, waiting
}

// Wanted are the results, of all cells in the order of the study, without those that nothing needs and that are not known.
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

// choose returns the chosen label of a place: as a report chooses it, once all labels are tried, and "" before. So far is the one that
// is the best of those that are tried, and the first one where none is.
func (b *Best) choose(labels []string, results []Result, place []int) (soFar, chosen string) {
	best, untried, first := math.NaN(), false, ""
	for _, label := range labels {
		var x []float64
		planned := 0
		for _, i := range place {
			r := results[i]
			if r.Cell.Labels[b.Axis] != label || !r.Cell.Matches(b.On) {
				continue
			}
			planned++
			if v, ok := r.Summary[b.Metric]; r.Diverged {
				x = append(x, math.NaN())
			} else if ok {
				x = append(x, v)
			}
		}
		if planned == 0 {
			continue
		}
		if first == "" {
			first = label
		}
		if len(x) < planned {
			untried = true
			continue
		}
		mean := 0.0
		for _, v := range x {
			mean += v / float64(len(x))
		}
		if math.IsNaN(mean) || math.IsInf(mean, 0) {
			continue
		}
		if math.IsNaN(best) || b.Better == "higher" && mean > best || b.Better != "higher" && mean < best {
			best, chosen = mean, label
		}
	}
	soFar = cmp.Or(chosen, first)
	if untried {
		chosen = ""
	}
	return soFar, chosen
}
