package study

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

// RunOptions are what [Run] needs beside the study.
type RunOptions struct {
	// Parallel is the number of cells to train at once; 0 means that of the study file.
	// If that is 0 too, it is as many as the cores allow: one cell on each core if the
	// models are small, one cell on all cores if they are large; on GPUs as many as have
	// their own.
	Parallel int
	// Retry also trains failed cells, from where they stopped.
	Retry bool
	// Only restricts the cells to those that match; nil means all cells.
	Only map[string][]string
	// IDs restricts the cells to these, too; nil means all cells.
	IDs []string
	// Share lets other processes with Share, on this machine or on others that see the study's
	// directory, train the study at the same time. Each cell is trained by one of them. Run returns
	// when all are done, whoever has done them.
	Share bool
	// Elsewhere holds the results of all cells that are kept elsewhere, in the order of the study.
	// Those that are known are not trained, unless another cell is made of their model, and tables
	// choose from them as from those here ([Study.Prune]). Nil means none.
	Elsewhere []Result
	// Command is the program, with its first arguments, that trains. It is given the path
	// of a configuration, --resume, --quiet and --lifeline=TIME. Nil means this executable
	// with "train".
	Command []string
	// Tool is the program that evaluates; its arguments are those of the cage command.
	// Nil means this executable.
	Tool []string
	// Survey runs before any cell is trained. It looks for problems in the configurations
	// of the cells to be trained that loading the study cannot detect, such as those of
	// plugin parameters, and for runs that are stale. If it is nil, such problems show
	// only when a cell is trained, and no run is found stale.
	Survey Survey
	// KeepStale leaves stale runs as they are. Otherwise they are put aside and trained anew.
	KeepStale bool
	// Planned is called with the plan before anything is done; nil means no call.
	Planned func(Plan)
	// Watch is called when something has changed, and twice a second, but never by two
	// goroutines at once. Nil means no call.
	Watch func(console.Progress)
}

// Outcome says how many of the runs that were asked for are in each state. Cells that
// share a run count once.
type Outcome struct {
	Cells       int `json:"cells"`
	Done        int `json:"done"`
	Failed      int `json:"failed"`
	Running     int `json:"running"`
	Interrupted int `json:"interrupted"`
	Missing     int `json:"missing"`
	Unevaluated int `json:"unevaluated"`
	Stale       int `json:"stale"`
	Trained     int `json:"trained"` // done by this call
}

// Plan says what [Run] would do.
type Plan struct {
	Results []Result // one for each run that was asked for
	Run     []Cell   // what would be trained, quantized or evaluated, in order
	Waiting []Cell   // what waits until a table can choose, and is not in Run
	AtOnce  int      // cells running at once
	Threads int      // threads of each cell
}

// ErrInterrupted is returned when the context ended before the study did. The cells that
// were being trained have saved checkpoints and continue in the next [Run].
var ErrInterrupted = errors.New("the study was interrupted")

// Plan returns what [Run] would do.
func (s *Study) Plan(ctx context.Context, o RunOptions) (Plan, error) {
	results, err := s.Results()
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	selected, seen := map[string]bool{}, map[string]bool{}
	for i, c := range s.Cells {
		asked := c.Matches(o.Only) && (o.IDs == nil || slices.Contains(o.IDs, c.ID))
		selected[c.ID] = selected[c.ID] || asked && (o.Elsewhere == nil || !o.Elsewhere[i].Known())
	}
	for _, c := range s.Cells { // also those whose models selected cells are made of
		if selected[c.ID] {
			for of := s.madeOf(c); of != nil; of = s.madeOf(*of) {
				selected[of.ID] = true
			}
		}
	}
	for _, r := range results {
		if selected[r.Cell.ID] && !seen[r.Cell.ID] {
			seen[r.Cell.ID] = true
			p.Results = append(p.Results, r)
		}
	}
	// Problems of cells that are to be trained are reported by check, with their place.
	var unknown *NotCompared
	if err := s.FindStale(ctx, p.Results, o.Survey); err != nil && !errors.As(err, &unknown) {
		return Plan{}, err
	}
	latest := map[string]Result{} // by ID: with what has been found stale
	for _, r := range p.Results {
		latest[r.Cell.ID] = r
	}
	for i, r := range results {
		if known, ok := latest[r.Cell.ID]; ok {
			known.Cell = r.Cell
			results[i] = known
		} else if o.Elsewhere != nil && o.Elsewhere[i].Known() {
			results[i] = o.Elsewhere[i]
		}
	}
	spared, waiting := s.Prune(results)
	p.Results = slices.DeleteFunc(p.Results, func(r Result) bool { return spared[r.Cell.ID] && !r.Known() })
	states := statesOf(p.Results)
	// A model whose source is missing, and will be trained from the beginning, is stale.
	s.markRemade(p.Results, func(_, source Cell) bool { return states[source.ID] == Missing })
	for _, r := range p.Results {
		if waiting[r.Cell.ID] && !r.Known() {
			p.Waiting = append(p.Waiting, r.Cell)
			continue
		}
		if r.State == Missing || r.State == Interrupted || r.State == Unevaluated || r.State == Failed && o.Retry || r.State == Stale && !o.KeepStale {
			p.Run = append(p.Run, r.Cell)
		}
	}
	// Models come before what is made of them.
	slices.SortStableFunc(p.Run, func(a, b Cell) int {
		return cmp.Compare(s.depth(a), s.depth(b))
	})
	p.AtOnce, p.Threads = share(p.Run, runtime.GOMAXPROCS(0), len(newGPUs().names), cmp.Or(o.Parallel, s.Parallel))
	return p, nil
}

// Run trains the cells that are not done, each in a process of its own, so that a crash of one
// affects no other. Cells that fail are recorded with their error and not tried again without
// Retry. If a single cell is stopped, by a request in its directory, the others go on, and the
// error at the end is [ErrInterrupted]. When ctx ends, the cells that are running save checkpoints,
// and the error is [ErrInterrupted], too. If this process is killed, they also save checkpoints.
func Run(ctx context.Context, s *Study, o RunOptions) (Outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return Outcome{}, err
	}
	if o.Tool == nil {
		o.Tool = []string{self}
	}
	if o.Command == nil {
		o.Command = []string{self, "train"}
	}
	if err := s.checkOurs(); err != nil {
		return Outcome{}, err
	}
	if err := s.at(rundir.StudyCells).MkdirAll(); err != nil {
		return Outcome{}, err
	}
	end, err := s.begin(ctx, o.Share)
	if err != nil {
		return Outcome{}, err
	}
	out, err := s.rounds(ctx, o)
	return out, errors.Join(err, end())
}

// begin makes this process the one that runs the study, or one of those that do, until end is
// called.
func (s *Study) begin(ctx context.Context, share bool) (end func() error, err error) {
	if share { // what is left is removed by one that is alone, if there is one
		lock, err := s.at(lockFile).Lock()
		if err == nil {
			err = errors.Join(s.tidy(), lock.Unlock())
		}
		if err != nil && !errors.Is(err, vfs.ErrLocked) {
			return nil, err
		}
	}
	lock, err := s.lock(ctx, share)
	if err != nil {
		return nil, err
	}
	if !share {
		if err := s.tidy(); err != nil {
			return nil, errors.Join(err, lock.Unlock())
		}
		return lock.Unlock, nil
	}
	leave, err := s.join(ctx)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return func() error { return errors.Join(leave(), lock.Unlock()) }, nil
}

// rounds trains what there is to train, until nothing more comes up: when cells are done, a table
// may choose others, and processes that share the study may leave cells to this one.
func (s *Study) rounds(ctx context.Context, o RunOptions) (Outcome, error) {
	for trained := 0; ; {
		plan, err := s.Plan(ctx, o)
		if err != nil {
			return Outcome{}, err
		}
		if err := s.check(ctx, plan.Run, o.Survey); err != nil {
			return Outcome{}, err
		}
		if o.Planned != nil {
			o.Planned(plan)
		}
		if err := atomicfile.WriteBytes(s.at(rundir.StudyFile), s.text); err != nil {
			return Outcome{}, err
		}
		r := newRunner(s, o, plan)
		err = r.run(ctx)
		out := r.outcome()
		again := err == nil && ctx.Err() == nil && len(r.stopped) == 0 && (len(plan.Waiting) > 0 && out.Trained+r.found > 0 || len(r.later) > 0)
		trained += out.Trained
		if again {
			o.Retry = o.Retry && !o.Share // which has been done
			continue
		}
		out.Trained = trained
		unfinished := ctx.Err() != nil && out.Interrupted+out.Missing+out.Stale+out.Unevaluated+out.Running > 0
		if err == nil && (unfinished || len(r.stopped) > 0) {
			err = fmt.Errorf("%w: %d of %d cells are done", ErrInterrupted, out.Done, out.Cells)
		}
		return out, err
	}
}

// checkOurs refuses a directory that belongs to something else: it has a file with the name of the
// study file's copy that is no copy of one, or a copy of another one where no study has run.
func (s *Study) checkOurs() error {
	began, err := s.at(rundir.StudyCells).Exists()
	if err != nil {
		return err
	}
	path := s.at(rundir.StudyFile)
	return atomicfile.CheckOurs(path, func(content io.Reader) bool {
		text, err := io.ReadAll(io.LimitReader(content, 1<<20)) // no study file is larger
		if err != nil || !began || bytes.Equal(text, s.text) {
			return err == nil && bytes.Equal(text, s.text)
		}
		doc, err := plaintoml.Parse(path.Name, text)
		return err == nil && (doc.Values()["study"] != nil || doc.Values()["base"] != nil)
	})
}

// check looks for the files that the cells need, runs the survey, and prepares the questions of
// evaluations, before any cell is trained. All problems are reported together.
func (s *Study) check(ctx context.Context, cells []Cell, survey Survey) error {
	var found problems
	var list []*config.Config
	var names []string
	for _, c := range cells {
		if err := c.Config.CheckFiles(); err != nil {
			found.add(err, s.Label(c))
			continue
		}
		list, names = append(list, c.Config), append(names, s.Label(c))
	}
	if survey != nil && len(list) > 0 {
		for i, f := range survey(ctx, list) {
			if f.Err != nil {
				found.add(f.Err, names[i])
			}
		}
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if len(cells) == 0 {
		return nil
	}
	errs := found.list(len(cells))
	for _, e := range s.evaluations {
		if err := e.Check(); err != nil {
			wrong := e.place
			wrong.Msg = err.Error()
			errs = append(errs, &wrong)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}
