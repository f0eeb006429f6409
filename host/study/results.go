package study

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// State is how far a cell has come.
type State string

// The states of a cell.
const (
	Missing     State = "missing"     // nothing of it exists
	Running     State = "running"     // it is being trained
	Interrupted State = "interrupted" // begun, can be resumed
	Stale       State = "stale"       // made from something that has changed since, see [Study.FindStale]
	Failed      State = "failed"      // its training ended in an error
	Unevaluated State = "unevaluated" // trained, but not all evaluations are done
	Done        State = "done"
)

// Result is what is known of a cell.
type Result struct {
	Cell  Cell
	State State
	// Err is, for a failed cell, the last error of its training, or the file that cannot be read; for a stale cell,
	// what has changed.
	Err string
	// Diverged says that a failed cell's loss or gradient was not finite: the cell has no results, but is not left out
	// of means.
	Diverged bool
	// Unreadable says that the cell counts as failed because a file of its run is damaged.
	Unreadable bool
	// Summary holds every number of summary.json by its name there, and the metrics of
	// finished evaluations by their names. It is nil unless the training is done.
	Summary map[string]float64
}

// Trained reports whether the training of the cell is done and may be reported on,
// whatever the state of its evaluations.
func (r Result) Trained() bool { return r.Summary != nil }

// Known reports whether the outcome of the cell is known: it is done, or it diverged.
func (r Result) Known() bool { return r.State == Done || r.Diverged }

// Results reads from disk how far every cell has come. It may be called at any time, even
// while the study runs in this or another process.
func (s *Study) Results() ([]Result, error) {
	running, err := s.running()
	if err != nil {
		return nil, err
	}
	list := make([]Result, len(s.Cells))
	read := map[string]Result{} // by ID: cells may share a run
	for i, c := range s.Cells {
		r, known := read[c.ID]
		if !known {
			r = s.readCellResult(c, slices.Contains(running, c.ID))
			read[c.ID] = r
		}
		r.Cell = c
		list[i] = r
	}
	return list, nil
}

// readCellResult reads one cell. A damaged file of its own makes it a failed one, which
// --retry brings to its end again from its last checkpoint, and leaves the others alone.
func (s *Study) readCellResult(c Cell, running bool) Result {
	dir := s.dir(c)
	unreadable := func(err error) Result {
		return Result{Cell: c, State: Failed, Err: CannotRead(err), Unreadable: true}
	}
	summary, completed, err := metrics.ReadNumbers(s.run(c).Summary())
	switch {
	case completed:
		r := Result{Cell: c, State: Done, Summary: summary}
		s.addEvaluations(&r, running)
		return r
	case running:
		return Result{Cell: c, State: Running}
	case err != nil:
		return unreadable(err)
	}
	failure, err := readFailure(dir)
	if err == nil {
		r := Result{Cell: c, State: Failed, Err: failure.Error}
		if summary, err := metrics.ReadSummary(s.run(c).Summary()); err == nil {
			r.Diverged = summary.Stopped == metrics.Diverged
		}
		return r
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return unreadable(err)
	}
	begun, err := dir.Join(cellFile).Exists()
	switch {
	case err != nil:
		return unreadable(err)
	case begun:
		return Result{Cell: c, State: Interrupted}
	}
	return Result{Cell: c, State: Missing}
}

// CannotRead returns the text of [Result.Err] for a damaged file.
func CannotRead(err error) string { return "cannot be read: " + err.Error() }

// Failure says why a cell failed, as stored in failed.json.
type Failure struct {
	Error    string `json:"error"`    // the last error of the training
	Exit     string `json:"exit"`     // how its process ended: "exit status 1", "signal: killed"
	Attempts int    `json:"attempts"` // how often it has been tried
	Log      string `json:"log_tail"` // the last lines of its output
	File     string `json:"log"`      // where the rest is, relative to the cell's directory

	stopped bool // it ended because it was to
}

// readFailure reads the account of a cell's failure.
func readFailure(dir rundir.Dir) (Failure, error) {
	var f Failure
	path := dir.Join(failedFile)
	text, err := path.ReadFile()
	if err != nil {
		return f, err
	}
	if err := plainjson.Unmarshal(text, &f); err != nil {
		return f, &damagedFailure{path, err}
	}
	return f, nil
}

// damagedFailure is the error about a failed.json that holds something else.
type damagedFailure struct {
	path vfs.Path
	err  error
}

func (d *damagedFailure) Error() string { return fmt.Sprintf("%s: %v", d.path, d.err) }
func (d *damagedFailure) Unwrap() error { return d.err }
