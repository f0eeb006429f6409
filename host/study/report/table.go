package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/stat"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Table is a table of the report: for each row and column, the replicates' mean and
// standard deviation.
type Table struct {
	Title    string
	Metric   string
	RowAxes  []string
	ColAxes  []string
	Over     []string   // axes of replicates
	Rows     [][]string // labels of RowAxes
	Columns  [][]string // labels of ColAxes
	Baseline int        // the column with which the others are compared; -1: none
	Better   string     // "lower", "higher" or "none", which marks nothing
	Entries  [][]Entry  // by row and column

	intervals           int         // number of differences with an interval
	best                *study.Best // nil: every axis is in the table
	format, differences string      // verbs of a number, and of a difference
}

// Entry is one cell of a table.
type Entry struct {
	stat.Sample
	Expected int // number of replicates that the study plans here; 0: this combination is not part of the study
	Mark     Mark
	// Difference is the difference from the baseline column in the same row, over the
	// replicates that both have; nil in that column itself, or without a baseline.
	Difference *stat.Difference
	// Holm is the probability of such a difference by chance, with Holm's correction for the number of the table's differences; NaN
	// where the difference has no interval.
	Holm float64
	// Choice is the value that was chosen here; nil in tables that choose none, and where nothing is known yet.
	Choice *Choice
}

// Mark says how an entry compares with the best of its row.
type Mark string

// The marks. Comparisons are made replicate by replicate, in pairs.
const (
	Plain    Mark = ""         // clearly not the best: the interval of the difference excludes zero
	Best     Mark = "best"     // the best mean in its row
	Tied     Mark = "tied"     // the interval of its difference to the best includes zero
	Untested Mark = "untested" // its replicates cannot be compared with those of the best, or contradict the means
)

func newTable(s *study.Study, t study.Table, results []study.Result) (*Table, error) {
	if err := deterministic(t.Metric); err != nil {
		return nil, err
	}
	sides := [][]string{t.Rows, t.Columns}
	if t.Best != nil {
		if err := deterministic(t.Best.Metric); err != nil {
			return nil, err
		}
		sides = append(sides, []string{t.Best.Axis})
	}
	g, err := group(s, results, t.Over, t.Where, sides...)
	if err != nil {
		return nil, err
	}
	out := &Table{
		Title: cmp.Or(t.Title, metrics.Label(t.Metric)), Metric: t.Metric, RowAxes: t.Rows, ColAxes: t.Columns, Over: t.Over,
		Rows: g.labels[0], Columns: g.labels[1], Better: cmp.Or(t.Better, "lower"), best: t.Best,
	}
	if out.Baseline, err = baseline(t, out.Columns); err != nil {
		return nil, err
	}
	for _, row := range out.Rows {
		places, choices := make([][]replicate, len(out.Columns)), make([]*Choice, len(out.Columns))
		for c, column := range out.Columns {
			if t.Best != nil {
				choices[c], places[c] = g.choose(t.Best, row, column)
			} else {
				places[c] = g.at(row, column)
			}
		}
		entries := out.entries(places)
		for c := range entries {
			entries[c].Choice = choices[c]
		}
		out.Entries = append(out.Entries, entries)
	}
	out.correct()
	out.format = cmp.Or(t.Format, chooseFormat(out.Entries))
	out.differences = differenceFormat(out.format, out.Entries)
	return out, nil
}

// correct sets Holm in all entries, and counts the differences that have an interval.
func (t *Table) correct() {
	var p []float64
	for _, row := range t.Entries {
		for _, e := range row {
			one := math.NaN()
			if e.Difference != nil {
				one = e.Difference.P()
			}
			if p = append(p, one); !math.IsNaN(one) {
				t.intervals++
			}
		}
	}
	p = stat.Holm(p)
	for _, row := range t.Entries {
		for c := range row {
			row[c].Holm, p = p[0], p[1:]
		}
	}
}

// stands reports whether a difference would be clear at stat.Level with Holm's correction, too. A single one needs none.
func (t *Table) stands(e Entry) bool { return t.intervals > 1 && e.Holm < 1-stat.Level }

// columns are the labels above the columns, one column left out. A table without axes in
// its columns has a single column, named after the metric.
func (t *Table) columns(without int) [][]string {
	if len(t.ColAxes) == 0 {
		return [][]string{{metrics.Label(t.Metric)}}
	}
	list := slices.Clone(t.Columns)
	if without >= 0 {
		list = slices.Delete(list, without, without+1)
	}
	return list
}

// baseline finds the column that has all labels of the baseline.
func baseline(t study.Table, columns [][]string) (int, error) {
	found := -1
	if len(t.Baseline) == 0 {
		return found, nil
	}
	for i, labels := range columns {
		matches := true
		for axis, label := range t.Baseline {
			at := slices.Index(t.Columns, axis)
			if at < 0 {
				return -1, fmt.Errorf("baseline: %s is not among the columns", axis)
			}
			matches = matches && labels[at] == label
		}
		if matches && found >= 0 {
			return -1, fmt.Errorf("baseline: %s and %s both have its labels; name one column", join(columns[found]), join(labels))
		}
		if matches {
			found = i
		}
	}
	if found < 0 && len(columns) > 0 {
		return -1, fmt.Errorf("baseline: no column has the labels %v", t.Baseline)
	}
	return found, nil
}

// entries computes one row.
func (t *Table) entries(places [][]replicate) []Entry {
	row := make([]Entry, len(places))
	means := make([]float64, len(places))
	for c, list := range places {
		_, x := values(list, t.Metric)
		row[c] = Entry{Sample: stat.Describe(x), Expected: len(list)}
		if c != t.Baseline && t.Baseline >= 0 {
			if a, b := pairValues(list, places[t.Baseline], t.Metric); len(a) > 0 {
				d := stat.Pair(a, b, stat.Level)
				row[c].Difference = &d
			}
		}
		means[c] = row[c].Mean
	}
	best := -1
	if t.Better != "none" {
		best = study.Pick(t.Better, means)
	}
	known := 0
	for c := range row {
		if best >= 0 && !math.IsNaN(row[c].Mean) {
			row[c].Mark = t.mark(c, best, places)
			known++
		}
	}
	if known == 1 { // there is nothing to compare the best with
		row[best].Mark = Plain
	}
	return row
}

func (t *Table) mark(c, best int, places [][]replicate) Mark {
	if c == best {
		return Best
	}
	a, b := pairValues(places[c], places[best], t.Metric)
	switch d := stat.Pair(a, b, stat.Level); {
	case math.IsInf(d.Mean, 0): // it diverged where the best did not
		return Plain
	case !d.Known(), d.Clear() && study.Better(t.Better, d.Mean, 0): // where the best lacks replicates, those of both may say the opposite
		return Untested
	case d.Clear():
		return Plain
	}
	return Tied
}

// grid is a table as it is printed, in whatever form: the means, or the differences to
// the baseline.
type grid struct {
	title       string
	notes       []string   // sentences that explain it
	columns     [][]string // labels above the columns
	cells       [][]cell   // by row and column
	differences bool
}

// cell is a place of a grid.
type cell struct {
	text string // as a reader sees it; empty: the study has no such place
	sign string // how it compares with the best, or that a difference stands with a correction; to be set behind text
	note string // what was chosen, and its number of replicates, where that is not what the table has
	bold bool
	key  *float64 // what it is sorted by; nil where a value is missing
}

// absent stands for a value that is missing.
const absent = "–"

// grids are the table of means and, where there are columns beside that of the baseline, that of the differences to it.
func (t *Table) grids() []grid {
	list := []grid{t.grid(t.Title, t.notes(), -1, func(e Entry) cell {
		return cell{t.mean(e), t.sign(e), joinNotes(e.chosen(), t.replicates(e)), e.Mark == Best, &e.Mean}
	})}
	if t.Baseline < 0 || len(t.Columns) == 1 {
		return list
	}
	below := t.grid(t.Title+": difference to "+join(t.Columns[t.Baseline]), t.differenceNotes(), t.Baseline, func(e Entry) cell {
		d := e.Difference
		if d == nil {
			return cell{text: absent}
		}
		c := cell{text: intervalText(t.signed, *d), bold: d.Clear(), key: &d.Mean}
		if t.stands(e) {
			c.sign = " ‡"
		}
		if d.N != t.common() {
			c.note = fmt.Sprintf("n = %d", d.N)
		}
		return c
	})
	below.differences = true
	return append(list, below)
}

// grid shows the entries, one column left out.
func (t *Table) grid(title string, notes []string, without int, show func(Entry) cell) grid {
	g := grid{title: title, notes: notes, columns: t.columns(without)}
	for _, entries := range t.Entries {
		var row []cell
		for c, e := range entries {
			switch {
			case c == without:
			case e.Expected == 0:
				row = append(row, cell{})
			case e.N == 0 && without < 0:
				row = append(row, cell{text: absent, note: e.chosen()})
			case e.N == 0:
				row = append(row, cell{text: absent})
			default:
				row = append(row, show(e))
			}
		}
		g.cells = append(g.cells, row)
	}
	return g
}

// Place is an entry of a table as text.
type Place struct {
	N          int    // number of replicates
	Expected   int    // number of replicates that the study plans here
	Mean       string // mean, with its standard deviation if there are several replicates
	Choice     string // the value that was chosen here, with † at the end of its axis; empty where none is chosen
	Difference string // difference from the baseline, with its interval; empty if there is none
}

// Place finds the only entry that has all of the given labels, which belong to axes of
// rows and columns.
func (t *Table) Place(labels map[string]string) (Place, error) {
	var found []Entry
	for i := range t.Rows {
		for c := range t.Columns {
			if e := t.Entries[i][c]; e.Expected > 0 && contains(t.labels(i, c), labels) {
				found = append(found, e)
			}
		}
	}
	if len(found) != 1 {
		return Place{}, fmt.Errorf("%d entries of the table %q have the labels %v; want labels of one", len(found), t.Title, labels)
	}
	e := found[0]
	if e.N == 0 {
		return Place{}, fmt.Errorf("there is no result yet for %v of the table %q", labels, t.Title)
	}
	p := Place{N: e.N, Expected: e.Expected, Mean: t.mean(e), Choice: e.chosen()}
	if e.Difference != nil {
		p.Difference = intervalText(t.signed, *e.Difference)
	}
	return p, nil
}

// contains reports whether all of some labels are among others.
func contains(all, some map[string]string) bool {
	for axis, label := range some {
		if all[axis] != label {
			return false
		}
	}
	return true
}
