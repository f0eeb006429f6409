package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
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
	Baseline int        // the column with which the others are compared; -1: none, or not one column
	Better   string     // "lower", "higher" or "none", which marks nothing
	Entries  [][]Entry  // by row and column

	base                map[string]string // labels of what the others are compared with; empty: there is none
	beside              bool              // differences stand beside the means
	intervals           int               // number of differences with an interval
	best                *study.Best       // nil: every axis is in the table
	format, differences string            // verbs of a number, and of a difference
}

// Entry is one cell of a table.
type Entry struct {
	study.Sample
	Expected int // number of replicates that the study plans here; 0: this combination is not part of the study
	Mark     Mark
	// Difference is the difference from the entry with the labels of the baseline, and for other
	// axes the same as here, over the replicates that both have; nil in the baseline itself, or
	// without one.
	Difference *study.Difference
	// Holm is the probability of such a difference by chance, with Holm's correction for the number
	// of the table's differences; NaN where the difference has no interval.
	Holm float64
	// Choice is the value that was chosen here; nil in tables that choose none, and where nothing
	// is known yet.
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
		Rows: g.labels[0], Columns: g.labels[1], Baseline: -1, Better: cmp.Or(t.Better, "lower"),
		best: t.Best, base: t.Baseline, beside: t.Beside,
	}
	places, choices := make([][][]replicate, len(out.Rows)), make([][]*Choice, len(out.Rows))
	for i, row := range out.Rows {
		places[i], choices[i] = make([][]replicate, len(out.Columns)), make([]*Choice, len(out.Columns))
		for c, column := range out.Columns {
			if t.Best != nil {
				choices[i][c], places[i][c] = g.choose(t.Best, row, column)
			} else {
				places[i][c] = g.at(row, column)
			}
		}
	}
	if err := out.compare(places); err != nil {
		return nil, err
	}
	for i := range out.Rows {
		for c := range out.Columns {
			out.Entries[i][c].Choice = choices[i][c]
		}
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
	p = study.Holm(p)
	for _, row := range t.Entries {
		for c := range row {
			row[c].Holm, p = p[0], p[1:]
		}
	}
}

// stands reports whether a difference would be clear at study.Level with Holm's correction, too. A
// single one needs none.
func (t *Table) stands(e Entry) bool { return t.intervals > 1 && e.Holm < 1-study.Level }

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

func (t *Table) compare(places [][][]replicate) error {
	found := len(t.base) == 0
	for i := range t.Rows {
		t.Entries = append(t.Entries, t.entries(places[i]))
		for c := range t.Columns {
			row, column := t.baseOf(i, c)
			if row < 0 || column < 0 {
				continue
			}
			found = true
			if row == i && column == c {
				continue
			}
			if a, b := pairValues(places[i][c], places[row][column], t.Metric); len(a) > 0 {
				d := study.Pair(a, b, study.Level)
				t.Entries[i][c].Difference = &d
			}
		}
	}
	if !found && len(t.Rows) > 0 {
		return fmt.Errorf("baseline: no column has the labels %v", t.base)
	}
	named := func(axis string) bool { return t.base[axis] != "" }
	unnamed := func(axis string) bool { return t.base[axis] == "" }
	column := len(t.ColAxes) > 0 && !slices.ContainsFunc(t.ColAxes, unnamed) // it names one
	if column && len(t.Rows) > 0 && len(t.Columns) > 0 && !slices.ContainsFunc(t.RowAxes, named) {
		_, t.Baseline = t.baseOf(0, 0)
	}
	return nil
}

// baseOf finds the place with which that of a row and a column is compared; negative: there is
// none.
func (t *Table) baseOf(i, c int) (row, column int) {
	at := func(all [][]string, axes, own []string) int {
		want := slices.Clone(own)
		for k, axis := range axes {
			want[k] = cmp.Or(t.base[axis], own[k])
		}
		return slices.IndexFunc(all, func(labels []string) bool { return slices.Equal(labels, want) })
	}
	if len(t.base) == 0 {
		return -1, -1
	}
	return at(t.Rows, t.RowAxes, t.Rows[i]), at(t.Columns, t.ColAxes, t.Columns[c])
}

func (t *Table) baseName() string {
	var labels []string
	for _, axis := range slices.Concat(t.ColAxes, t.RowAxes) {
		if label := t.base[axis]; label != "" {
			labels = append(labels, label)
		}
	}
	return join(labels)
}

func (t *Table) entries(places [][]replicate) []Entry {
	row := make([]Entry, len(places))
	means := make([]float64, len(places))
	for c, list := range places {
		_, x := values(list, t.Metric)
		row[c] = Entry{Sample: study.Describe(x), Expected: len(list)}
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
	switch d := study.Pair(a, b, study.Level); {
	case math.IsInf(d.Mean, 0): // it diverged where the best did not
		return Plain
	case !d.Known(), d.Clear() && study.Better(t.Better, d.Mean, 0): // where replicates of the best are missing, those of both may say the opposite
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

	difference bool
}

// absent stands for a value that is missing.
const absent = "–"

// grids are the table of means and, where there is something to compare with the baseline, that of
// the differences to it; or both in one table.
func (t *Table) grids() []grid {
	means := t.grid(t.Title, t.notes(), -1, func(e Entry) cell {
		note := joinNotes(e.chosen(), t.replicates(e))
		return cell{text: t.mean(e), sign: t.sign(e), note: note, bold: e.Mark == Best, key: &e.Mean}
	})
	if len(t.base) == 0 || len(t.Columns) == 1 && (t.Baseline >= 0 || len(t.Rows) == 1) {
		return []grid{means}
	}
	below := t.grid(t.Title+": difference to "+t.baseName(), t.differenceNotes(), t.Baseline, func(e Entry) cell {
		d := e.Difference
		if d == nil {
			return cell{text: absent}
		}
		c := cell{text: intervalText(t.signed, *d), bold: d.Clear(), key: &d.Mean, difference: true}
		if t.stands(e) {
			c.sign = " ‡"
		}
		if d.N != t.common() {
			c.note = fmt.Sprintf("n = %d", d.N)
		}
		return c
	})
	if t.beside {
		return []grid{t.merge(means, below)}
	}
	below.differences = true
	return []grid{means, below}
}

// merge puts each column of differences, where it has any, behind that of its means.
func (t *Table) merge(means, below grid) grid {
	notes := append(means.notes, "Δ: "+strings.Join(below.notes, " "))
	out := grid{title: means.title, notes: notes, cells: make([][]cell, len(t.Rows))}
	at := 0 // in below
	for c, labels := range means.columns {
		out.columns = append(out.columns, labels)
		shown := c != t.Baseline && slices.ContainsFunc(below.cells, func(row []cell) bool { return row[at].difference })
		if shown {
			difference := slices.Clone(labels)
			difference[len(labels)-1] = "Δ " + labels[len(labels)-1]
			out.columns = append(out.columns, difference)
		}
		for i := range t.Rows {
			out.cells[i] = append(out.cells[i], means.cells[i][c])
			if shown {
				out.cells[i] = append(out.cells[i], below.cells[i][at])
			}
		}
		if c != t.Baseline {
			at++
		}
	}
	return out
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

func contains(all, some map[string]string) bool {
	for axis, label := range some {
		if all[axis] != label {
			return false
		}
	}
	return true
}
