package study

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// State is the progress of a cell.
type State string

// The states of a cell.
const (
	Missing     State = "missing"     // it has no files yet
	Running     State = "running"     // it is being trained
	Interrupted State = "interrupted" // it has begun, and can be resumed
	Stale       State = "stale"       // its plugins or inputs have changed since
	Failed      State = "failed"      // its training ended in an error
	Unevaluated State = "unevaluated" // trained, but not all evaluations are done
	Done        State = "done"
)

// Result is what is known about the outcome of a cell.
type Result struct {
	Cell  Cell
	State State
	// Err is, for a failed cell, its last error message or the file that cannot be read, and for a
	// stale cell, the change that made it stale.
	Err string
	// Diverged reports whether the cell failed because the loss or gradient was not finite, is done
	// with such a validation loss, or is made from a model that diverged. It is not left out of means:
	// the metrics that it does not have are NaN.
	Diverged bool
	// Unreadable reports whether the cell counts as failed because a file of its run is damaged.
	Unreadable bool
	altered    bool // it is unreadable, and cannot be resumed
	read       bool // from the run, not from a file of kept results
	// Summary holds all numbers in summary.json and the metrics of finished evaluations, by name. It
	// is nil unless training is done.
	Summary map[string]float64
	// Holder is the process that is working on the cell; zero if there is none.
	Holder Holder
}

// Trained reports whether the cell's training is done and may be reported on, whatever the state of
// its evaluations.
func (r Result) Trained() bool { return r.Summary != nil }

// HasOutcome reports whether the outcome of the cell is known: it is done or diverged.
func (r Result) HasOutcome() bool { return r.State == Done || r.Diverged }

// Results reads the state of every cell from disk. It may be called at any time, even while the
// study runs in this or another process.
func (s *Study) Results() ([]Result, error) {
	running, err := Holders(s.at())
	if err != nil {
		return nil, err
	}
	list := make([]Result, len(s.Cells))
	read := map[string]Result{} // by ID: cells may share a run
	for i, c := range s.Cells {
		r, known := read[c.ID]
		if !known {
			holder, worked := running[c.ID]
			r = s.readCellResult(c, worked)
			if r.State == Running {
				r.Holder = holder
			}
			read[c.ID] = r
		}
		r.Cell = c
		list[i] = r
	}
	s.FindDiverged(list)
	return list, nil
}

// FindDiverged sets the state of cells that are made from a model that diverged to [Failed].
func (s *Study) FindDiverged(results []Result) {
	diverged := map[string]bool{}
	for _, r := range results {
		diverged[r.Cell.ID] = r.Diverged
	}
	for i := range results {
		r := &results[i]
		for from := r.Cell.made; from != nil && r.State != Done && r.State != Running; from = from.made {
			if diverged[from.ID] {
				r.State, r.Diverged, r.Err = Failed, true, "its source model diverged: "+s.Label(*from)
				break
			}
		}
	}
}

// NotFinite reports whether the validation loss in a summary is NaN or infinite.
func NotFinite(summary map[string]float64) bool {
	loss, ok := summary["val_loss"]
	return ok && loss-loss != 0
}

// readCellResult reads the result of a cell. If one of its files is damaged, only this cell counts
// as failed; --retry trains it again.
func (s *Study) readCellResult(c Cell, running bool) Result {
	r := Result{Cell: c, State: Missing}
	summary, completed, err := metrics.ReadNumbers(s.run(c).Summary())
	var altered error
	if completed {
		r.State, r.Summary, r.read = Done, summary, true
		for _, e := range s.evaluationsOf(c) {
			a, _, unread := readEvaluation(s.answers(c, e))
			for name, x := range a.Metrics {
				r.Summary[name] = float64(x)
			}
			if a.Metrics == nil {
				r.State = Unevaluated
			}
			err = cmp.Or(err, unread)
		}
		altered = s.verify(c)
		err = cmp.Or(altered, err)
		if r.Diverged = NotFinite(r.Summary); r.Diverged { // it is not evaluated
			r.State = Done
		}
	}
	switch {
	case r.State == Done && err == nil:
		return r
	case running:
		r.State = Running
		return r
	case err != nil:
		r := Damaged(c, err)
		_, r.altered = errors.AsType[*damagedFile](altered)
		return r
	}
	failure, err := readFailure(s.dir(c))
	if err == nil {
		r.State, r.Err = Failed, failure.Error
		if summary, err := metrics.ReadSummary(s.run(c).Summary()); err == nil {
			r.Diverged = summary.Stopped == metrics.Diverged
		}
		return r
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Damaged(c, err)
	}
	begun, err := s.dir(c).Join(cellFile).Exists()
	switch {
	case err != nil:
		return Damaged(c, err)
	case begun && !completed:
		r.State = Interrupted
	}
	return r
}

// Damaged returns the result of cell c if reading one of its files failed with err.
func Damaged(c Cell, err error) Result {
	return Result{Cell: c, State: Failed, Err: "cannot be read: " + err.Error(), Unreadable: true}
}

// Failure says why a cell failed, as stored in failed.json.
type Failure struct {
	Error    string `json:"error"`    // the last error of the training
	Exit     string `json:"exit"`     // end of its process: "exit status 1", "signal: killed"
	Attempts int    `json:"attempts"` // number of failed attempts
	Log      string `json:"log_tail"` // the last lines of its output
	File     string `json:"log"`      // name of the log file, relative to the cell's directory

	stopped bool // it ended because it was asked to stop
}

func readFailure(dir rundir.Dir) (Failure, error) {
	var f Failure
	path := dir.Join(failedFile)
	err := readOurs(path, &f)
	if err == nil && f.Error == "" {
		err = &damagedFile{path, errors.New("it names no error")}
	}
	return f, err
}

// readOurs decodes a small file of the study. If its content does not have the expected form, the
// error is a *damagedFile.
func readOurs(path vfs.Path, to any) error {
	text, err := path.ReadSmallFile(1 << 20)
	if err == nil {
		err = plainjson.UnmarshalStrict(text, to)
	} else if !errors.Is(err, vfs.ErrTooLarge) {
		return err
	}
	if err != nil {
		return &damagedFile{path, err}
	}
	return nil
}

type damagedFile struct {
	path vfs.Path
	err  error
}

func (d *damagedFile) Error() string { return fmt.Sprintf("%s: %v", d.path, d.err) }
func (d *damagedFile) Unwrap() error { return d.err }

// putAside renames the file so that nothing reads it; others may own it, so it is not deleted.
func (d *damagedFile) putAside() error {
	dir := d.path.Dir()
	to, err := dir.Unused(func(n int) string { return fmt.Sprintf("%s.damaged-%d", d.path.Base(), n) })
	if err != nil {
		return err
	}
	return errors.Join(d.path.Rename(to), dir.SyncDir())
}

// SummaryMetrics returns the names of the numbers in summary.json, except times and speeds, because
// a report contains only results that a second run would reproduce.
func SummaryMetrics() []string {
	return slices.DeleteFunc(metrics.NumberNames(reflect.TypeFor[metrics.Summary]()), metrics.Timed)
}

// RecordMetrics returns the names of the numbers in a line of metrics.jsonl, except times and
// speeds.
func RecordMetrics() []string {
	return slices.DeleteFunc(metrics.NumberNames(reflect.TypeFor[metrics.Record]()), metrics.Timed)
}

// Survey checks configurations against the current plugins and data, and returns a finding for
// each.
type Survey func(ctx context.Context, list []*config.Config) []config.Finding

// FindStale sets the state of results whose plugins, data or initial models have changed since to
// [Stale]: in a table with newly trained cells, they would mix two algorithms or models. If the
// questions of an evaluation have changed, the state becomes [Unevaluated]. Running and missing
// cells are skipped. If survey is nil, only questions are compared. The error reports cells that
// could not be compared, whose results are left unchanged.
func (s *Study) FindStale(ctx context.Context, results []Result, survey Survey) error {
	s.findOutdated(results)
	defer s.markRemade(results, func(c, source Cell) bool { // the source has been trained again since
		was, now := readRecord(s.run(c)).Initial.Run, readRecord(s.run(source)).Run
		return now != "" && was != "" && now != was
	})
	if survey == nil {
		return nil
	}
	begun := func(r Result) bool { return r.State != Missing && r.State != Running }
	stale := func(_ Result, f config.Finding) string { return f.Stale }
	err := MarkStale(ctx, results, survey, begun, stale)
	s.findReplaced(results)
	return err
}

// MarkStale surveys the results for which compared is true, and sets the state of those for which
// stale returns a reason to [Stale]. The error is a *[NotCompared].
func MarkStale(
	ctx context.Context, results []Result, survey Survey,
	compared func(Result) bool, stale func(Result, config.Finding) string,
) error {
	var list []*config.Config
	indices := map[string]int{} // in list, by ID: cells may share a run
	for _, r := range results {
		if _, known := indices[r.Cell.ID]; !known && compared(r) {
			indices[r.Cell.ID] = len(list)
			list = append(list, r.Cell.Config)
		}
	}
	if len(list) == 0 {
		return nil
	}
	findings := survey(ctx, list)
	for i, r := range results {
		if k, ok := indices[r.Cell.ID]; ok && findings[k].Err == nil {
			if why := stale(r, findings[k]); why != "" {
				results[i] = Result{Cell: r.Cell, State: Stale, Err: why}
			}
		}
	}
	failed := slices.DeleteFunc(findings, func(f config.Finding) bool { return f.Err == nil })
	if len(failed) > 0 {
		return &NotCompared{len(failed), failed[0].Err}
	}
	return nil
}

// NotCompared is the error for results that could not be checked for staleness.
type NotCompared struct {
	Runs  int   // how many runs
	First error // why the first could not be checked
}

func (e *NotCompared) Error() string {
	return fmt.Sprintf("%d runs could not be compared with the current plugins and data: %v",
		e.Runs, e.First)
}

func (e *NotCompared) Unwrap() error { return e.First }

// StaleDir returns the directory to which stale runs are moved.
func (s *Study) StaleDir() string { return s.at(rundir.StudyStale).Name }

// moveToStale moves dir to the directory of stale runs, as name with a number appended.
func (s *Study) moveToStale(dir vfs.Path, name string) error {
	if err := s.at(rundir.StudyStale).MkdirAll(); err != nil {
		return err
	}
	numbered := func(n int) string { return fmt.Sprintf("%s-%d", name, n) }
	to, err := s.at(rundir.StudyStale).Unused(numbered)
	if err == nil {
		err = dir.Rename(to)
	}
	if err != nil {
		return err
	}
	return errors.Join(to.Dir().SyncDir(), dir.Dir().SyncDir())
}
