package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
)

type runner struct {
	study *Study
	opts  RunOptions
	plan  Plan
	gpus  *gpus
	began time.Time

	attempts  map[string]int // failed attempts at the plan, by the ID of failed cells
	surveying sync.Mutex     // held while stale runs are checked again

	mu      sync.Mutex // guards the fields below, and calls of Watch
	states  map[string]State
	active  []*active // running cells, oldest first
	trained int
	worked  float64         // estimated operations of the cells that have ended
	found   int             // cells that other processes have done since the plan was made
	later   []Cell          // to check again: other processes work on them, or on their sources
	stopped map[string]bool // by ID, cells whose own processes were stopped by a signal
}

func newRunner(s *Study, o RunOptions, p Plan) *runner {
	r := &runner{
		study: s, opts: o, plan: p, gpus: newGPUs(), began: time.Now(),
		states: statesOf(p.Results), stopped: map[string]bool{}, attempts: map[string]int{},
	}
	for _, c := range p.Run {
		if r.states[c.ID] == Failed { // it has not ended: it waits for another attempt
			r.states[c.ID] = Interrupted
		}
	}
	for _, result := range p.Results {
		if id := result.Cell.ID; result.altered && r.states[id] == Interrupted {
			r.states[id] = Stale // it is trained from the beginning
		}
		switch result.State {
		case Running:
			r.later = append(r.later, result.Cell)
		case Failed:
			r.attempts[result.Cell.ID] = s.attempts(result.Cell)
		}
	}
	return r
}

// run trains and evaluates the cells of the plan. Its error is about the files of the study; if
// training fails, that sets the state of the cell instead.
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
	r.awaitOthers(ctx)
	stop()
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return nil
}

// cell trains and evaluates a cell and records the outcome.
func (r *runner) cell(ctx context.Context, c Cell) (err error) {
	if ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrLocks) {
			err = errors.Join(err, cause)
		}
	}()
	release, err := r.claim(ctx, c, cancel)
	if release == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	began, err := r.study.dir(c).Exists()
	if err != nil {
		return err
	}
	if began && r.stateOf(c) == Stale {
		if err := awaitFree(ctx, r.study.dir(c).Lock()); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.study.moveToStale(r.study.dir(c).Path, c.ID); err != nil {
			return err
		}
	}
	a := &active{cell: c, dir: r.study.dir(c), began: time.Now()}
	a.refresh()
	a.from = a.record.Step // the last step of the last attempt
	r.mu.Lock()
	r.active = append(r.active, a)
	r.states[c.ID] = Running
	r.show(console.Progress{})
	r.mu.Unlock()
	var releaseGPUs func()
	c.environment, releaseGPUs = r.gpus.acquire(c)
	state, failure, err := r.attempt(ctx, c)
	releaseGPUs()
	if err == nil && state == Interrupted && ctx.Err() == nil {
		r.mu.Lock()
		r.stopped[c.ID] = true
		r.mu.Unlock()
	}
	if err == nil && failure != nil {
		err = atomicfile.WriteJSON(r.study.dir(c).Join(failedFile), failure)
	}
	r.end(a, state, failure)
	return err
}

func (r *runner) stateOf(c Cell) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[c.ID]
}

func (r *runner) end(a *active, state State, f *Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := a.cell
	r.states[c.ID] = state
	a.refresh()
	r.worked += c.work(a.record.Step - a.from)
	r.active = slices.DeleteFunc(r.active, func(other *active) bool { return other == a })
	result := Result{Cell: c, State: state}
	switch state {
	case Done:
		r.trained++
		result = r.study.readCellResult(c, false)
	case Failed:
		result.Err = f.Error
	}
	ended := &console.Ended{
		Label: r.study.Label(c), State: string(result.State), Failed: result.State == Failed,
		Err: result.Err, Took: time.Since(a.began),
	}
	if loss, ok := result.Summary["val_loss"]; ok {
		ended.ValLoss = &loss
	}
	r.show(console.Progress{Ended: ended})
}

func (r *runner) outcome() Outcome {
	out := count(r.states)
	out.Trained = r.trained
	return out
}

// Count returns the number of results in each state.
func Count(results []Result) Outcome { return count(statesOf(results)) }

// statesOf returns the states by cell ID, since cells may share a run.
func statesOf(results []Result) map[string]State {
	states := map[string]State{}
	for _, r := range results {
		states[r.Cell.ID] = r.State
	}
	return states
}

func count(states map[string]State) Outcome {
	out := Outcome{Cells: len(states)}
	counts := map[State]*int{
		Done: &out.Done, Failed: &out.Failed, Missing: &out.Missing, Running: &out.Running,
		Interrupted: &out.Interrupted, Stale: &out.Stale, Unevaluated: &out.Unevaluated,
	}
	for _, state := range states {
		*counts[state]++
	}
	return out
}

// interval is the time between two progress reports.
const interval = 500 * time.Millisecond

type active struct {
	cell   Cell
	dir    rundir.Dir
	began  time.Time
	from   int            // its step at the start
	record metrics.Record // the newest one
}

// watch reports progress at regular intervals until stop is called.
func (r *runner) watch() (stop func()) {
	if r.opts.Watch == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for pause(ctx, interval); ctx.Err() == nil; pause(ctx, interval) {
			r.mu.Lock()
			r.show(console.Progress{})
			r.mu.Unlock()
		}
	})
	return func() { cancel(); done.Wait() }
}

// show completes a progress report and passes it to Watch. The caller holds r.mu.
func (r *runner) show(p console.Progress) {
	if r.opts.Watch == nil {
		return
	}
	out := r.outcome()
	p.Total, p.Done, p.Failed = out.Cells, out.Done, out.Failed
	for _, a := range r.active {
		a.refresh()
	}
	p.Running, p.Left = len(r.active), r.left()
	r.opts.Watch(p)
}

// left estimates the remaining time from the work done since the start. It includes cells that wait
// for a choice.
func (r *runner) left() time.Duration {
	done, rest := r.worked, 0.0
	for _, c := range slices.Concat(r.plan.Run, r.plan.Waiting) {
		if state := r.states[c.ID]; state != Done && state != Failed {
			rest += c.work(c.Config.Train.Steps)
		}
	}
	for _, a := range r.active {
		done += a.cell.work(a.record.Step - a.from)
		rest -= a.cell.work(a.record.Step)
	}
	if done <= 0 || rest <= 0 { // rest is also 0 if only the data determine the number of steps
		return 0
	}
	return time.Duration(float64(time.Since(r.began)) * rest / done)
}

func (a *active) refresh() {
	if r, ok, err := metrics.Last(a.dir.Metrics()); err == nil && ok { // otherwise keep the old record
		a.record = r
	}
}
