package report

import (
	"errors"

	"github.com/cage-qat/cage/host/study"
)

// Damage is a run that is left out of a report because one of its files cannot be read,
// or because it is stale.
type Damage struct {
	Run string `json:"run"` // directory of the run
	Err string `json:"error"`
}

// damaged is the error of a file of one cell.
type damaged struct {
	id  string
	err error
}

func (d *damaged) Error() string { return d.err.Error() }
func (d *damaged) Unwrap() error { return d.err }

// leaveOut turns the results of the run that err is about into those of a failed one. It
// is false when err is not about the files of one run.
func leaveOut(results []study.Result, err error) bool {
	d, ok := errors.AsType[*damaged](err)
	if !ok {
		return false
	}
	for i := range results {
		if r := &results[i]; r.Cell.ID == d.id {
			*r = study.Result{Cell: r.Cell, State: study.Failed, Err: study.CannotRead(d.err), Unreadable: true}
		}
	}
	return true
}

// runsWith lists the runs with a reason to be left out, each once however many cells share it.
func runsWith(results []study.Result, reason func(study.Result) bool) []Damage {
	var list []Damage
	known := map[string]bool{}
	for _, r := range results {
		if reason(r) && !known[r.Cell.ID] {
			known[r.Cell.ID] = true
			list = append(list, Damage{r.Cell.Dir, r.Err})
		}
	}
	return list
}
