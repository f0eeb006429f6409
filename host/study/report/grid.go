package report

import "fmt"

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
	sign string // how it compares with the best, to be set behind text
	note string // what was chosen, and its number of replicates, where that is not what the table has
	bold bool
	key  *float64 // what it is sorted by; nil where a value is missing
}

// absent stands for a value that is missing.
const absent = "–"

// grids are the table of means and, where there are columns beside that of the baseline, that of the differences to it.
func (t *Table) grids() []grid {
	list := []grid{t.grid(t.Title, t.notes(), -1, func(e Entry) cell {
		return cell{t.mean(e), t.sign(e), withoutEmpty(e.chosen(), t.replicates(e)), e.Mark == Best, &e.Mean}
	})}
	if t.Baseline < 0 || len(t.Columns) == 1 {
		return list
	}
	below := t.grid(t.Title+": difference to "+join(t.Columns[t.Baseline]), t.differenceNotes(), t.Baseline, func(e Entry) cell {
		d := e.Difference
		if d == nil {
			return cell{text: absent}
		}
		c := cell{text: t.interval(*d), bold: d.Clear(), key: &d.Mean}
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
