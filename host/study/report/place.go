package report

import "fmt"

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
		p.Difference = t.interval(*e.Difference)
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
