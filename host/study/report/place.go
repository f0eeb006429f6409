package report

import "fmt"

// Place is an entry of a table as a reader sees it.
type Place struct {
	N          int    // replicates
	Expected   int    // that the study has here
	Mean       string // with its standard deviation, where there are several
	Difference string // to the baseline, with its interval; empty where there is none
}

// Place finds the one entry with all of the given labels, which are of axes of rows and
// columns.
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
	p := Place{N: e.N, Expected: e.Expected, Mean: t.mean(e)}
	if e.Difference != nil {
		p.Difference = t.interval(*e.Difference)
	}
	return p, nil
}

// contains tells whether all of some labels are among others.
func contains(all, some map[string]string) bool {
	for axis, label := range some {
		if all[axis] != label {
			return false
		}
	}
	return true
}
