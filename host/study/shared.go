package study

import (
	"context"
	"errors"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

// claim claims a cell for this process. It returns a nil release if there is nothing to do at
// present: another process is working on the cell, or has done so since the plan was made, or the
// source of the cell's model is not ready.
func (r *runner) claim(
	ctx context.Context, c Cell, lost func(error),
) (release func() error, err error) {
	err = vfs.ErrLocked
	if state, _ := r.source(c); state != Running || !r.opts.Share {
		release, err = r.study.claim(ctx, c.ID, r.opts.Share, lost)
	}
	switch {
	case release == nil && ctx.Err() != nil:
		return nil, nil
	case errors.Is(err, vfs.ErrLocked): // perhaps only for a moment, to check whether it is locked
		r.mu.Lock()
		defer r.mu.Unlock()
		r.later = append(r.later, c)
		return nil, nil
	case err != nil || !r.opts.Share:
		return release, err
	}
	now, again := r.recheck(ctx, c)
	if again && ctx.Err() == nil {
		return release, nil
	}
	if ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states[c.ID], r.found = now, r.found+1
	}
	return nil, release()
}

// recheck reads the state of a claimed cell, and reports whether the cell still has to be trained:
// another process may have trained it since the plan was made.
func (r *runner) recheck(ctx context.Context, c Cell) (State, bool) {
	planned := r.stateOf(c)
	now := []Result{r.study.readCellResult(c, false)}
	var survey Survey
	if planned == Stale {
		r.surveying.Lock()
		defer r.surveying.Unlock()
		survey = r.opts.Survey
	}
	// Cells that cannot be compared keep their state; when the plan was made, they were not stale.
	_ = r.study.FindStale(ctx, now, survey)
	switch state := now[0].State; state {
	case Done:
		return state, false
	case Failed:
		before, failed := r.attempts[c.ID]
		return state, failed && before == r.study.attempts(c)
	default:
		return state, true
	}
}

func (s *Study) attempts(c Cell) int {
	f, _ := readFailure(s.dir(c)) // without attempts if it has not failed, or the number is unknown
	return f.Attempts
}

func (r *runner) awaitOthers(ctx context.Context) {
	if len(r.later) == 0 || len(r.stopped) > 0 {
		return
	}
	free := func(c Cell) bool {
		locked, err := claimFile(r.study.at(), c.ID).Locked()
		source, _ := r.source(c)
		return err != nil || !locked && source != Running // claiming it reports the error
	}
	for {
		pause(ctx, interval)
		if ctx.Err() != nil || slices.ContainsFunc(r.later, free) {
			return
		}
	}
}
