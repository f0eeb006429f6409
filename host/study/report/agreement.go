package report

import (
	"cmp"
	"math"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Agreement reports how well the results of a study were reproduced when it was trained again. It
// covers the cells whose results are known from both trainings.
type Agreement struct {
	Cells  int         `json:"cells"`
	Same   int         `json:"same"`   // cells whose common numbers are all equal to the last bit
	Values int         `json:"values"` // means, differences and choices of these cells in the tables
	Others []Deviation `json:"others"` // the values whose text in a table has changed
}

// Deviation is a mean, a difference from the baseline, or a choice that was not reproduced.
type Deviation struct {
	Table      string            `json:"table"` // title of the table
	Labels     map[string]string `json:"labels"`
	Difference bool              `json:"difference"` // it is a difference from the baseline
	Choice     bool              `json:"choice"`     // it is a chosen label
	N          int               `json:"n"`          // number of replicates
	Before     string            `json:"before"`     // with its 95 % confidence interval, if any
	Again      string            `json:"again"`      // without an interval
	Relation   Relation          `json:"place"`
}

// Relation is the relation of a value to an interval.
type Relation string

// The possible relations of a value to the interval.
const (
	Inside  Relation = "inside"      // inside the interval
	Outside Relation = "outside"     // outside it, or one of the two is NaN or infinite
	Unknown Relation = "no interval" // fewer than two replicates
)

// Agree compares the results of two trainings of a study, each in the order of its cells.
func Agree(s *study.Study, before, again []study.Result) *Agreement {
	out := &Agreement{Others: []Deviation{}}
	both := [2][]study.Result{} // cells that are not known in both are missing
	seen := map[string]bool{}
	for i, b := range before {
		c := again[i]
		if !b.Known() || !c.Known() {
			missing := study.Result{Cell: b.Cell, State: study.Missing}
			b, c = missing, missing
		} else if !seen[b.Cell.ID] {
			seen[b.Cell.ID] = true
			if out.Cells++; sameNumbers(b, c) {
				out.Same++
			}
		}
		both[0], both[1] = append(both[0], b), append(both[1], c)
	}
	tables, now := Tables(s, both[0]), Tables(s, both[1])
	for k := range tables {
		t := &tables[k]
		for i, row := range t.Entries {
			for c, e := range row {
				f := now[k].Entries[i][c]
				if e.N == 0 && f.N == 0 {
					continue
				}
				d := Deviation{Table: t.Title, Labels: t.labels(i, c), N: e.N}
				low, high := e.Interval(study.Level)
				mean := study.Difference{N: e.N, Mean: e.Mean, SD: e.SD, Low: low, High: high}
				out.add(d, t.number, mean, f.Mean)
				if t.Best != nil {
					chosen := d
					if out.Values++; e.chosen() != f.chosen() {
						chosen.Choice, chosen.Relation = true, Unknown
						chosen.Before, chosen.Again = cmp.Or(e.chosen(), absent), cmp.Or(f.chosen(), absent)
						out.Others = append(out.Others, chosen)
					}
				}
				if e.Difference != nil && f.Difference != nil {
					d.Difference, d.N = true, e.Difference.N
					out.add(d, t.signed, *e.Difference, f.Difference.Mean)
				}
			}
		}
	}
	return out
}

// sameNumbers reports whether two results agree: both diverged, or all numbers that both have, and
// that are not times, are equal (other versions record more or fewer) and there is at least one.
func sameNumbers(x, y study.Result) bool {
	compared := x.Diverged && y.Diverged
	for name, a := range x.Summary {
		b, both := y.Summary[name]
		if !both || metrics.Timed(name) {
			continue
		}
		if a != b && !(math.IsNaN(a) && math.IsNaN(b)) {
			return false
		}
		compared = true
	}
	return compared && x.Diverged == y.Diverged
}

// add counts a value, and records a deviation if its text has changed.
func (a *Agreement) add(
	d Deviation, write func(float64) string, before study.Difference, again float64,
) {
	a.Values++
	if d.Again = write(again); d.Again == write(before.Mean) {
		return
	}
	d.Before, d.Relation = intervalText(write, before), Outside
	switch finite := !math.IsNaN(again-before.Mean) && !math.IsInf(again-before.Mean, 0); {
	case finite && !before.Known():
		d.Relation = Unknown
	case finite && before.Low <= again && again <= before.High:
		d.Relation = Inside
	}
	a.Others = append(a.Others, d)
}

// Count returns the number of deviations with this relation to their interval.
func (a *Agreement) Count(relation Relation) int {
	n := 0
	for _, d := range a.Others {
		if d.Relation == relation {
			n++
		}
	}
	return n
}
