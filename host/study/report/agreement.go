package report

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Agreement says how well the results of a study were reproduced when it was trained
// again. It covers the cells whose results are known from both times.
type Agreement struct {
	Cells  int         `json:"cells"`
	Same   int         `json:"same"`   // number of cells of which all numbers that both times know are equal to the last bit
	Values int         `json:"values"` // number of means, differences and choices in the tables of these cells
	Others []Deviation `json:"others"` // those of the values that are now written differently in a table
	// Numbers of cells that only one of the times knows, by name, such as those that a version does
	// not write any more.
	OnlyBefore []string `json:"only_before,omitempty"`
	OnlyAgain  []string `json:"only_again,omitempty"`
}

// Deviation is a mean, a difference from the baseline, or a choice that was not reproduced.
type Deviation struct {
	Table      string            `json:"table"` // title of the table
	Labels     map[string]string `json:"labels"`
	Difference bool              `json:"difference"` // whether it is a difference from the baseline, rather than a mean
	Choice     bool              `json:"choice"`     // whether it is a value that was chosen
	N          int               `json:"n"`          // number of replicates
	Before     string            `json:"before"`     // with its 95 % confidence interval, if there is one
	Again      string            `json:"again"`      // without an interval
	Place      Where             `json:"place"`
}

// Where is how a value relates to an interval.
type Where string

// The possible relations of a value to the interval.
const (
	Inside  Where = "inside"      // inside the interval
	Outside Where = "outside"     // outside it, or one of the two is NaN or infinite
	Unknown Where = "no interval" // fewer than two replicates
)

// Agree compares the results of two trainings of the cells of a study, in the order of the cells.
func Agree(s *study.Study, before, again []study.Result) (*Agreement, error) {
	if len(before) != len(s.Cells) || len(again) != len(s.Cells) {
		return nil, errors.New("results of another study")
	}
	out := &Agreement{Others: []Deviation{}}
	before, again = out.inBoth(before, again)
	tables, err := Tables(s, before)
	if err != nil {
		return nil, err
	}
	now, err := Tables(s, again)
	if err != nil {
		return nil, err
	}
	for i := range tables {
		out.compare(&tables[i], &now[i])
	}
	return out, nil
}

// inBoth marks the cells as missing that are not known on both sides, and counts the others.
func (a *Agreement) inBoth(before, again []study.Result) (x, y []study.Result) {
	seen := map[string]bool{}
	for i := range before {
		b, c := before[i], again[i]
		if !b.Known() || !c.Known() {
			missing := study.Result{Cell: b.Cell, State: study.Missing}
			x, y = append(x, missing), append(y, missing)
			continue
		}
		x, y = append(x, b), append(y, c)
		if seen[b.Cell.ID] {
			continue
		}
		seen[b.Cell.ID] = true
		a.Cells++
		if b.Diverged == c.Diverged && sameNumbers(b.Summary, c.Summary) {
			a.Same++
		}
		if !b.Diverged && !c.Diverged { // which have no numbers
			a.OnlyBefore = without(a.OnlyBefore, b.Summary, c.Summary)
			a.OnlyAgain = without(a.OnlyAgain, c.Summary, b.Summary)
		}
	}
	return x, y
}

// sameNumbers reports whether the numbers that both have are equal, but for times, and whether
// there are any: other versions may have more of them, or fewer. Those that have none have
// diverged.
func sameNumbers(x, y map[string]float64) bool {
	compared := 0
	for name, a := range x {
		b, both := y[name]
		if !both || metrics.Timed(name) {
			continue
		}
		if a != b && !(math.IsNaN(a) && math.IsNaN(b)) {
			return false
		}
		compared++
	}
	return compared > 0 || len(x) == 0 && len(y) == 0
}

// without adds to a sorted list the names of the numbers of x that y does not have, but for times.
func without(list []string, x, y map[string]float64) []string {
	for name := range x {
		if _, both := y[name]; !both && !metrics.Timed(name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// compare adds the values of one table. They are written as in the first.
func (a *Agreement) compare(t, now *Table) {
	for i := range t.Rows {
		for c := range t.Columns {
			e, f := t.Entries[i][c], now.Entries[i][c]
			if e.N == 0 && f.N == 0 {
				continue
			}
			d := Deviation{Table: t.Title, Labels: t.labels(i, c), N: e.N}
			low, high := e.Interval(study.Level)
			a.add(d, t.number, study.Difference{N: e.N, Mean: e.Mean, SD: e.SD, Low: low, High: high}, f.Mean)
			if t.best != nil {
				chosen := d
				if a.Values++; e.chosen() != f.chosen() {
					chosen.Choice, chosen.Before, chosen.Again, chosen.Place = true, cmp.Or(e.chosen(), absent), cmp.Or(f.chosen(), absent), Unknown
					a.Others = append(a.Others, chosen)
				}
			}
			if e.Difference != nil && f.Difference != nil {
				d.Difference, d.N = true, e.Difference.N
				a.add(d, t.signed, *e.Difference, f.Difference.Mean)
			}
		}
	}
}

// add counts a value, and notes it where it is written in another way now.
func (a *Agreement) add(d Deviation, write func(float64) string, before study.Difference, again float64) {
	a.Values++
	if d.Again = write(again); d.Again == write(before.Mean) {
		return
	}
	d.Before, d.Place = intervalText(write, before), Outside
	switch finite := !math.IsNaN(again-before.Mean) && !math.IsInf(again-before.Mean, 0); {
	case finite && !before.Known():
		d.Place = Unknown
	case finite && before.Low <= again && again <= before.High:
		d.Place = Inside
	}
	a.Others = append(a.Others, d)
}

// Count returns how many of the deviating values have this relation to their interval.
func (a *Agreement) Count(place Where) int {
	n := 0
	for _, d := range a.Others {
		if d.Place == place {
			n++
		}
	}
	return n
}
