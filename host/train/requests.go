package train

import (
	"context"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// ErrAsked is the [ErrInterrupted] of a run that was asked to stop by a request in its run directory.
var ErrAsked = fmt.Errorf("%w by a request in its run directory", ErrInterrupted)

// requestInterval is the time between two looks for requests.
const requestInterval = time.Second

// forget takes away the requests from before this process trained in the directory: nobody waits for them.
func (r *run) forget() {
	if r.opts.Files == nil {
		r.dir.Take(rundir.Stop)
		r.dir.Take(rundir.Checkpoint)
	}
}

// obey looks for requests until the function that it returns is called. A request to stop
// ends the context. Other processes are on the operating system's file system alone.
func (r *run) obey(ctx context.Context) (context.Context, func()) {
	if r.opts.Files != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(requestInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if r.dir.Take(rundir.Checkpoint) {
				r.saveAsked.Store(true)
			}
			if r.dir.Take(rundir.Stop) {
				cancel(ErrAsked)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}
