package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// runner runs the cells of a study.
type runner struct {
	study *Study
	opts  RunOptions
	plan  Plan
	gpus  *gpus
	began time.Time

	mu      sync.Mutex // guards what follows, and calls of Watch
	states  map[string]State
	active  []*active // running cells, oldest first
	trained int
	worked  float64         // estimated operations of the cells that have ended
	counted map[string]int  // steps of cells whose data decides how many there are, once they are known, by ID
	stopped map[string]bool // cells that were stopped by a request of their own, by ID
}

func newRunner(s *Study, o RunOptions, p Plan) *runner {
	return &runner{study: s, opts: o, plan: p, gpus: newGPUs(), began: time.Now(), states: statesOf(p.Results), counted: map[string]int{}, stopped: map[string]bool{}}
}

// run trains and evaluates the cells of the plan. Its error is about the files of the study; the error of a training is in
// the state of its cell.
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

// cell trains and evaluates one cell and records how it ended.
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
		if err := r.study.moveToStale(r.study.dir(c).Path, c.ID); err != nil {
			return err
		}
	}
	if err := r.start(c); err != nil {
		return err
	}
	began := time.Now()
	var release func()
	c.environment, release = r.gpus.acquire(c)
	state, failure, err := r.attempt(ctx, c)
	release()
	if err == nil && state == Interrupted && ctx.Err() == nil {
		r.noteStopped(c)
	}
	if err == nil && failure != nil {
		err = atomicfile.WriteJSON(r.study.dir(c).Join(failedFile), failure)
	}
	return errors.Join(err, r.end(c, state, failure, time.Since(began)))
}

func (r *runner) stateOf(c Cell) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[c.ID]
}

// noteStopped records that a cell was stopped by a request of its own.
func (r *runner) noteStopped(c Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped[c.ID] = true
}

func (r *runner) wasStopped(c Cell) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped[c.ID]
}

// start records that a cell is running.
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
	r.show(console.Progress{})
	return nil
}

// end records how a cell has ended.
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
	result := Result{Cell: c, State: state}
	switch state {
	case Done:
		r.trained++
		result = r.study.readCellResult(c, false)
	case Failed:
		result.Err = f.Error
	}
	ended := &console.Ended{Label: r.study.Label(c), State: string(result.State), Failed: result.State == Failed, Err: result.Err, Took: took}
	if loss, ok := result.Summary["val_loss"]; ok {
		ended.ValLoss = &loss
	}
	r.show(console.Progress{Ended: ended})
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

// Count counts how many results are in each state.
func Count(results []Result) Outcome { return count(statesOf(results)) }

// statesOf returns the states of the runs by ID: cells may share a run.
func statesOf(results []Result) map[string]State {
	states := map[string]State{}
	for _, r := range results {
		states[r.Cell.ID] = r.State
	}
	return states
}

func count(states map[string]State) Outcome {
	out := Outcome{Cells: len(states)}
	of := map[State]*int{Done: &out.Done, Failed: &out.Failed, Missing: &out.Missing, Running: &out.Running, Interrupted: &out.Interrupted, Stale: &out.Stale, Unevaluated: &out.Unevaluated}
	for _, state := range states {
		*of[state]++
	}
	return out
}
