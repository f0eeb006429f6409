package study

import (
	"context"
	"errors"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

// claim takes a cell for this process. Without a lock there is nothing to do now: another process
// works on the cell, or has done so since the plan was made, or the model is not there yet that it
// is made of.
func (r *runner) claim(ctx context.Context, c Cell) (vfs.Lock, error) {
	if !r.decided(c) {
		r.putOff(c)
		return nil, nil
	}
	lock, err := takeClaim(r.study.at(), c.ID)
	if errors.Is(err, vfs.ErrLocked) {
		r.putOff(c)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, again := r.again(ctx, c)
	if again && ctx.Err() == nil {
		return lock, nil
	}
	if ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states[c.ID], r.found = now, r.found+1
	}
	return nil, lock.Unlock()
}

// again reads the state of a cell that has been claimed, and reports whether it is still to be
// trained: another process may have done that after the plan was made.
func (r *runner) again(ctx context.Context, c Cell) (State, bool) {
	planned := r.stateOf(c)
	now := []Result{r.study.readCellResult(c, false)}
	var survey Survey
	if planned == Stale {
		r.surveying.Lock()
		defer r.surveying.Unlock()
		survey = r.opts.Survey
	}
	// What cannot be compared was none that the plan found stale.
	_ = r.study.FindStale(ctx, now, survey)
	switch state := now[0].State; state {
	case Done:
		return state, false
	case Failed:
		return state, planned == Failed && r.attempts[c.ID] == r.study.attempts(c)
	default:
		return state, true
	}
}

func (s *Study) attempts(c Cell) int {
	f, err := readFailure(s.dir(c))
	if err != nil { // it has not failed, or nobody knows how often
		return 0
	}
	return f.Attempts
}

// decided reports whether a cell need not wait for the cell that it is made of.
func (r *runner) decided(c Cell) bool {
	_, decided, _ := r.source(c)
	return decided
}

func (r *runner) putOff(c Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.later = append(r.later, c)
}

// awaitOthers waits until one of the cells that were put off can be claimed.
func (r *runner) awaitOthers(ctx context.Context) {
	if len(r.later) == 0 || len(r.stopped) > 0 {
		return
	}
	free := func(c Cell) bool {
		locked, err := claimFile(r.study.at(), c.ID).Locked()
		return err != nil || !locked && r.decided(c) // claiming it reports the error
	}
	for {
		pause(ctx, interval)
		if ctx.Err() != nil || slices.ContainsFunc(r.later, free) {
			return
		}
	}
}
