package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
)

// Table is a table of the report: for each row and column, the mean and standard deviation over
// replicates.
type Table struct {
	study.Table             // with the format of its numbers
	RowLabels    [][]string // labels of the axes Rows
	ColumnLabels [][]string // labels of the axes Columns
	Entries      [][]Entry  // by row and column

	// Conclusion says which is the cheapest entry within an interval of the best; "" without costs.
	Conclusion string

	axes        []study.Axis // all of the study
	common      int          // the largest number of replicates; most entries have as many
	baseColumn  int          // the column with which the others are compared; -1: not a single one
	intervals   int          // number of differences with an interval
	differences string       // format of a difference
}

// Entry is one cell of a table.
type Entry struct {
	study.Sample
	Expected int // number of replicates in the study; 0: it has no such combination
	Mark     Mark
	// Difference is the paired difference between this entry and the one that has the baseline's
	// labels and otherwise this entry's, over the replicates that both have; nil for the baseline
	// itself, or if there is no baseline.
	Difference *study.Difference
	// Items is the same difference by items; nil if they are not known.
	Items *study.ItemDifference
	Also  []study.Sample // of the metrics Also of the table
	// Holm is the p-value of the difference, corrected for the number of the table's differences by
	// Holm's method; NaN if the difference has no interval.
	Holm float64
	// Choice is the label that was chosen for the entry; nil in tables without choices, or if it is
	// not known yet.
	Choice *Choice
}

// Mark is the result of comparing an entry with the best of its row.
type Mark string

// Results of comparisons, which are paired by replicate.
const (
	Plain    Mark = ""         // clearly not the best: the interval of the difference excludes zero
	Best     Mark = "best"     // the best mean in its row
	Tied     Mark = "tied"     // the interval of its difference to the best includes zero
	Untested Mark = "untested" // cannot be compared with the best, or replicates contradict the means
)

func newTable(s *study.Study, t study.Table, results []study.Result) Table {
	sides := [][]string{t.Rows, t.Columns}
	if t.Best != nil {
		sides = append(sides, []string{t.Best.Axis})
	}
	g := group(s, results, t.Over, t.Where, sides...)
	out := Table{
		Table: t, RowLabels: g.labels[0], ColumnLabels: g.labels[1], axes: s.Axes, baseColumn: -1,
	}
	groups := make([][][]replicate, len(out.RowLabels))
	for i, row := range out.RowLabels {
		choices := make([]*Choice, len(out.ColumnLabels))
		for c, column := range out.ColumnLabels {
			list := g.at(row, column)
			if t.Best != nil {
				choices[c], list = g.choose(t.Best, row, column)
			}
			groups[i] = append(groups[i], list)
		}
		entries := out.entries(groups[i])
		for c := range entries {
			entries[c].Choice = choices[c]
		}
		out.Entries = append(out.Entries, entries)
	}
	out.compare(s, groups)
	out.addAlso(results, groups)
	all := slices.Concat(out.Entries...)
	samples := lists.Map(all, func(e Entry) study.Sample { return e.Sample })
	out.Format = cmp.Or(t.Format, chooseFormat(samples))
	out.differences = differenceFormat(out.Format, all)
	if t.Cost != "" {
		out.conclude(s, groups)
	}
	return out
}

// entries returns a row of the table with its marks, and raises t.common.
func (t *Table) entries(groups [][]replicate) []Entry {
	row := make([]Entry, len(groups))
	means := make([]float64, len(groups))
	known := 0
	for c, list := range groups {
		_, x := values(list, t.Metric)
		row[c] = Entry{Sample: study.Describe(x), Expected: len(list)}
		t.common = max(t.common, len(x))
		if means[c] = row[c].Mean; !math.IsNaN(means[c]) {
			known++
		}
	}
	best := study.Pick(t.Better, means)
	if t.Better == "none" || best < 0 || known < 2 { // or there is nothing to compare the best with
		return row
	}
	row[best].Mark = Best
	for c := range row {
		if c == best || math.IsNaN(means[c]) {
			continue
		}
		a, b := pairValues(groups[c], groups[best], t.Metric)
		switch d := study.Pair(a, b, study.Level); {
		case math.IsInf(d.Mean, 0): // it diverged and the best did not
		case !d.HasInterval(), d.Clear() && study.Better(t.Better, d.Mean, 0):
			// If replicates of the best entry are missing, the common ones may contradict the means.
			row[c].Mark = Untested
		case !d.Clear():
			row[c].Mark = Tied
		}
	}
	return row
}

// compare adds the differences from the baseline, with Holm's correction for multiple tests.
func (t *Table) compare(s *study.Study, groups [][][]replicate) {
	var p []float64
	for i := range t.RowLabels {
		for c := range t.ColumnLabels {
			value := math.NaN()
			row, column := t.baseOf(i, c)
			if row >= 0 && column >= 0 && (row != i || column != c) {
				if a, b := pairValues(groups[i][c], groups[row][column], t.Metric); len(a) > 0 {
					d := study.Pair(a, b, study.Level)
					t.Entries[i][c].Difference = &d
					value = d.P()
					t.Entries[i][c].Items = pairItems(s, groups[i][c], groups[row][column], t.Metric)
				}
			}
			if p = append(p, value); !math.IsNaN(value) {
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
	named := func(axis string) bool { return t.Baseline[axis] != "" }
	unnamed := func(axis string) bool { return t.Baseline[axis] == "" }
	single := len(t.Columns) > 0 && !slices.ContainsFunc(t.Columns, unnamed) &&
		!slices.ContainsFunc(t.Rows, named)
	if single && len(t.RowLabels) > 0 && len(t.ColumnLabels) > 0 {
		_, t.baseColumn = t.baseOf(0, 0)
	}
}

// clearWithHolm reports whether a difference is still clear at study.Level after Holm's correction.
// A single difference needs no correction.
func (t *Table) clearWithHolm(e Entry) bool { return t.intervals > 1 && e.Holm < 1-study.Level }

// baseOf returns the row and column of the entry with which the entry in row i and column c is
// compared; they are negative if there is none.
func (t *Table) baseOf(i, c int) (row, column int) {
	at := func(all [][]string, axes, own []string) int {
		want := slices.Clone(own)
		for k, axis := range axes {
			want[k] = cmp.Or(t.Baseline[axis], own[k])
		}
		return slices.IndexFunc(all, func(labels []string) bool { return slices.Equal(labels, want) })
	}
	if len(t.Baseline) == 0 {
		return -1, -1
	}
	return at(t.RowLabels, t.Rows, t.RowLabels[i]), at(t.ColumnLabels, t.Columns, t.ColumnLabels[c])
}

func (t *Table) baseName() string {
	var labels []string
	for _, axis := range slices.Concat(t.Columns, t.Rows) {
		if label := t.Baseline[axis]; label != "" {
			labels = append(labels, label)
		}
	}
	return join(labels)
}

type grid struct {
	Title       string
	Notes       []string // sentences that explain it
	Head        []string // one line of headings
	Texts       int      // number of columns at the left that hold left-aligned text: labels
	Rows        [][]cell
	Differences bool // it holds the differences of the table before it
}

type cell struct {
	Text string // the displayed text; empty: the study has no such entry
	Sign string // after Text: the comparison with the best, or ‡
	Note string // the chosen label, and the number of replicates if it differs from the table's
	Bold bool
	Head bool     // whether it names its row
	Link string   // ID of an element of the page
	Key  *float64 // sort key; nil: sorted to the end
}

// absent is shown in place of a missing value.
const absent = "–"

// Grids returns the table of means and, if there is a baseline to compare entries with, the table
// of differences from it; or one table with both.
func (t *Table) Grids() []grid {
	means := t.grid(t.Title, t.notes(), -1, func(e Entry) cell {
		if e.N == 0 {
			return cell{Text: absent, Note: e.ChoiceText()}
		}
		c := cell{Text: t.MeanText(e), Bold: e.Mark == Best, Key: sortKey(e.Mean)}
		switch {
		case e.Mark == Tied:
			c.Sign = " ≈"
		case e.Mark == Untested && t.common > 1: // in a table of single runs a note says so once
			c.Sign = " ?"
		}
		notes := []string{e.ChoiceText()}
		if e.N < e.Expected {
			notes = append(notes, fmt.Sprintf("%d of %d", e.N, e.Expected))
		} else if t.common != e.N {
			notes = append(notes, fmt.Sprintf("n = %d", e.N))
		}
		c.Note = strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
		return c
	})
	alone := len(t.ColumnLabels) == 1 && (t.baseColumn >= 0 || len(t.RowLabels) == 1)
	var overview []grid
	if len(t.Also) > 0 {
		overview = []grid{t.overview()}
	}
	if len(t.Baseline) == 0 || alone {
		return append([]grid{means}, overview...)
	}
	title := t.Title + ": difference to " + t.baseName()
	differences := t.grid(title, t.differenceNotes(), t.baseColumn, func(e Entry) cell {
		d := e.Difference
		if d == nil {
			return cell{Text: absent}
		}
		c := cell{Text: t.DifferenceText(e), Bold: d.Clear(), Key: sortKey(d.Mean)}
		if t.clearWithHolm(e) {
			c.Sign = " ‡"
		}
		var notes []string
		if d.N != t.common {
			notes = append(notes, fmt.Sprintf("n = %d", d.N))
		}
		if e.Items != nil {
			notes = append(notes, t.itemsText(*e.Items))
		}
		c.Note = strings.Join(notes, "; ")
		return c
	})
	differences.Differences = true
	return append([]grid{means, differences}, overview...)
}

// grid shows the entries, omitting the column with index without. A table without axes in its
// columns has a single column, named after the metric.
func (t *Table) grid(title string, notes []string, without int, show func(Entry) cell) grid {
	g := grid{Title: title, Notes: notes, Head: slices.Clone(t.Rows), Texts: len(t.Rows)}
	for c, labels := range t.ColumnLabels {
		if len(t.Columns) == 0 {
			labels = []string{metrics.Label(t.Metric)}
		}
		if c != without {
			g.Head = append(g.Head, join(labels))
		}
	}
	for i, entries := range t.Entries {
		row := labelCells(t.axes, t.Rows, t.RowLabels[i])
		for c, e := range entries {
			switch {
			case c == without:
			case e.Expected == 0:
				row = append(row, cell{})
			default:
				row = append(row, show(e))
			}
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// labelCells returns the labels of a row. Their sort keys are their indices on their axes.
func labelCells(all []study.Axis, axes, labels []string) (row []cell) {
	for k, label := range labels {
		i := slices.IndexFunc(all, func(a study.Axis) bool { return a.Name == axes[k] })
		key := float64(slices.Index(all[i].Labels, label))
		row = append(row, cell{Text: label, Head: true, Key: &key})
	}
	return row
}

// sortKey returns the sort key of a number; NaN sorts last.
func sortKey(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// Find returns the only entry that has all the given labels, which may be of axes in rows and
// columns. It is an error if there is not exactly one.
func (t *Table) Find(labels map[string]string) (Entry, error) {
	var found []Entry
	for i := range t.RowLabels {
		for c := range t.ColumnLabels {
			has, all := t.labels(i, c), true
			for axis, label := range labels {
				all = all && has[axis] == label
			}
			if e := t.Entries[i][c]; e.Expected > 0 && all {
				found = append(found, e)
			}
		}
	}
	if len(found) != 1 {
		return Entry{}, fmt.Errorf("%d entries of the table %q have the labels %v, want one",
			len(found), t.Title, labels)
	}
	if found[0].N == 0 {
		return Entry{}, fmt.Errorf("there is no result yet for %v of the table %q", labels, t.Title)
	}
	return found[0], nil
}
