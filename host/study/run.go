package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// RunOptions are what [Run] needs beside the study.
type RunOptions struct {
	// Parallel is the number of cells at once; 0: that of the study file, and when that is
	// 0 too, as many as the cores allow: one cell on each core when the models are small,
	// one cell on all cores when they are large.
	Parallel int
	// Retry trains failed cells, too, from where they stopped.
	Retry bool
	// Only restricts the cells to those that match; nil: all.
	Only map[string][]string
	// Command is the program that trains with its first arguments. It is given the path of
	// a configuration, --resume, --quiet and --lifeline. Nil: this executable with "train".
	Command []string
	// Survey looks, before any cell is trained, for what is wrong with the configurations of
	// those that are to be and that loading the study cannot tell, such as the parameters
	// of plugins, and for runs that are stale. Nil: the first shows when a cell is trained,
	// and no run is stale.
	Survey Survey
	// KeepStale leaves stale runs as they are. Otherwise they are put aside and trained anew.
	KeepStale bool
	// Planned is told what is going to be done, before anything is. Nil: nobody is.
	Planned func(Plan)
	// Watch is called when something has changed, and twice a second, never by two
	// goroutines at once. Nil: nobody watches.
	Watch func(Progress)
}

// Outcome is what a study came to: how many runs there are in each state, of those that
// were asked for. Cells that share a run count once.
type Outcome struct {
	Cells       int `json:"cells"`
	Done        int `json:"done"`
	Failed      int `json:"failed"`
	Running     int `json:"running"`
	Interrupted int `json:"interrupted"`
	Missing     int `json:"missing"`
	Stale       int `json:"stale"`
	Trained     int `json:"trained"` // done by this call
}

// Plan says what [Run] would do.
type Plan struct {
	Results []Result // one for each run that was asked for
	Run     []Cell   // what would be trained, in order
	AtOnce  int      // cells side by side
	Threads int      // threads of each
}

// ErrInterrupted is returned when the context ended before the study did. The cells that
// were being trained have saved checkpoints and go on in the next [Run].
var ErrInterrupted = errors.New("the study was interrupted")

// Plan tells what [Run] would do.
func (s *Study) Plan(ctx context.Context, o RunOptions) (Plan, error) {
	results, err := s.Results()
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	seen := map[string]bool{}
	for _, r := range results {
		if r.Cell.Matches(o.Only) && !seen[r.Cell.ID] {
			seen[r.Cell.ID] = true
			p.Results = append(p.Results, r)
		}
	}
	if o.Survey != nil {
		// What is wrong with a cell that is trained is reported with its place, see check.
		var unknown *NotCompared
		if err := FindStale(ctx, p.Results, o.Survey); err != nil && !errors.As(err, &unknown) {
			return Plan{}, err
		}
	}
	for _, r := range p.Results {
		if r.State == Missing || r.State == Interrupted || r.State == Failed && o.Retry || r.State == Stale && !o.KeepStale {
			p.Run = append(p.Run, r.Cell)
		}
	}
	parallel := o.Parallel
	if parallel == 0 {
		parallel = s.Parallel
	}
	p.AtOnce, p.Threads = share(p.Run, runtime.GOMAXPROCS(0), parallel)
	return p, nil
}

// Run trains the cells that are not done, each in a process of its own, so that one that
// crashes takes no other with it. Cells that fail are kept with their error and not tried
// again without Retry. When ctx ends, the cells under way save checkpoints, and the error
// is [ErrInterrupted]. Should this process be killed, they do the same.
func Run(ctx context.Context, s *Study, o RunOptions) (Outcome, error) {
	if o.Command == nil {
		self, err := os.Executable()
		if err != nil {
			return Outcome{}, err
		}
		o.Command = []string{self, "train"}
	}
	if err := s.at(cellsDir).MkdirAll(); err != nil {
		return Outcome{}, err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Unlock()
	if err := removeAbandoned(s.at(), studyFile, runningFile); err != nil {
		return Outcome{}, err
	}
	if err := s.setRunning(); err != nil {
		return Outcome{}, err
	}
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
	if err := atomicfile.WriteBytes(s.at(studyFile), s.text); err != nil {
		return Outcome{}, err
	}
	r := newRunner(s, o, plan)
	err = r.run(ctx)
	out := r.outcome()
	if err == nil && ctx.Err() != nil && out.Interrupted+out.Missing+out.Stale > 0 {
		err = fmt.Errorf("%w: %d of %d cells are done", ErrInterrupted, out.Done, out.Cells)
	}
	return out, err
}

// check looks for the files that cells need, and for what further finds, before any is
// trained. All problems are reported together.
func (s *Study) check(ctx context.Context, cells []Cell, further Survey) error {
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
	if further != nil && len(list) > 0 {
		for i, f := range further(ctx, list) {
			if f.Err != nil {
				found.add(f.Err, names[i])
			}
		}
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	errs := found.list(len(cells))
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}

// runner is a study under way.
type runner struct {
	study *Study
	opts  RunOptions
	plan  Plan
	began time.Time

	mu      sync.Mutex // guards what follows, and calls of Watch
	states  map[string]State
	active  []*active // cells under way, oldest first
	trained int
	worked  float64 // operations that the cells that have ended took, as estimated
}

func newRunner(s *Study, o RunOptions, p Plan) *runner {
	r := &runner{study: s, opts: o, plan: p, began: time.Now(), states: map[string]State{}}
	for _, result := range p.Results {
		r.states[result.Cell.ID] = result.State
	}
	return r
}

// run trains the cells of the plan. Its error is one of keeping the books, not one of a
// training.
func (r *runner) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan Cell)
	var workers sync.WaitGroup
	for range r.plan.AtOnce {
		workers.Go(func() {
			for c := range queue {
				if err := r.cell(ctx, c); err != nil {
					cancel(fmt.Errorf("%s: %w", c.Dir, err))
				}
			}
		})
	}
	stop := r.watch()
	for _, c := range r.plan.Run {
		select {
		case queue <- c:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	workers.Wait()
	stop()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// cell trains one cell and notes how that went.
func (r *runner) cell(ctx context.Context, c Cell) error {
	if ctx.Err() != nil {
		return nil
	}
	if r.stateOf(c) == Stale {
		if err := awaitFree(ctx, r.study.dir(c)); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.study.putAside(c); err != nil {
			return err
		}
	}
	if err := r.start(c); err != nil {
		return err
	}
	began := time.Now()
	state, failure, err := attempt(ctx, r.study.dir(c), c, r.opts.Command, r.plan.Threads)
	if err == nil && failure != nil {
		err = failure.write(r.study.dir(c))
	}
	return errors.Join(err, r.end(c, state, failure, time.Since(began)))
}

func (r *runner) stateOf(c Cell) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[c.ID]
}

// start notes that a cell is being trained.
func (r *runner) start(c Cell) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &active{cell: c, dir: r.study.dir(c), began: time.Now()}
	a.look()
	a.from = a.record.Step // of the last attempt
	r.active = append(r.active, a)
	if err := r.study.setRunning(r.activeIDs()...); err != nil {
		r.active = r.active[:len(r.active)-1]
		return err
	}
	r.states[c.ID] = Running
	r.show(Progress{})
	return nil
}

// end notes how the training of a cell has ended.
func (r *runner) end(c Cell, state State, f *Failure, took time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[c.ID] = state
	i := slices.IndexFunc(r.active, func(a *active) bool { return a.cell.ID == c.ID })
	a := r.active[i]
	a.look()
	r.worked += work(c.Config, a.record.Step-a.from)
	r.active = slices.Delete(r.active, i, i+1)
	err := r.study.setRunning(r.activeIDs()...)
	ended := &Ended{Result: Result{Cell: c, State: state}, Label: r.study.Label(c), Took: took}
	switch state {
	case Done:
		r.trained++
		ended.Result = readCellResult(r.study.dir(c), c, false)
	case Failed:
		ended.Err = f.Error
	}
	r.show(Progress{Ended: ended})
	return err
}

func (r *runner) activeIDs() []string {
	ids := []string{}
	for _, a := range r.active {
		ids = append(ids, a.cell.ID)
	}
	return ids
}

// outcome counts the states.
func (r *runner) outcome() Outcome {
	out := count(r.states)
	out.Trained = r.trained
	return out
}

// Count counts the states of results.
func Count(results []Result) Outcome {
	states := map[string]State{}
	for _, r := range results {
		states[r.Cell.ID] = r.State
	}
	return count(states)
}

func count(states map[string]State) Outcome {
	out := Outcome{Cells: len(states)}
	for _, state := range states {
		switch state {
		case Done:
			out.Done++
		case Failed:
			out.Failed++
		case Missing:
			out.Missing++
		case Running:
			out.Running++
		case Interrupted:
			out.Interrupted++
		case Stale:
			out.Stale++
		}
	}
	return out
}
