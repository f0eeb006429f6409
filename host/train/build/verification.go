package build

import (
	"context"
	"time"

	"github.com/cage-qat/cage/host/data/dataset"
)

// Verification compares token files with their hashes while the first steps run. The first
// checkpoint waits for it, so that nothing computed from a damaged file is kept.
type Verification struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
	// awaited ends when somebody waits: until then the processors are left to the
	// training. hurry ends it.
	awaited context.Context
	hurry   context.CancelFunc
}

// idleShare is how long a verification that nobody waits for pauses, relative to how long
// it works: it takes a tenth of one processor.
const idleShare = 9

// pause leaves the processors to others for a while, or until somebody waits.
func (v *Verification) pause(worked time.Duration) {
	select {
	case <-v.awaited.Done():
	case <-time.After(idleShare * worked):
	}
}

// VerifyFiles begins the verification of files, one after the other.
func VerifyFiles(files ...*dataset.File) *Verification {
	ctx, stop := context.WithCancel(context.Background())
	v := &Verification{stop: stop, done: make(chan struct{})}
	v.awaited, v.hurry = context.WithCancel(ctx)
	go func() {
		defer close(v.done)
		for _, f := range files {
			if err := f.VerifyPaced(ctx, v.pause); err != nil {
				v.err = err
				return
			}
		}
	}()
	return v
}

// Failed returns the error that is known so far. A nil verification is of no files.
func (v *Verification) Failed() error {
	if v == nil {
		return nil
	}
	select {
	case <-v.done:
		return v.err
	default:
		return nil
	}
}

// Wait returns when all files are verified, or one is known to be damaged.
func (v *Verification) Wait() error {
	if v == nil {
		return nil
	}
	v.hurry()
	<-v.done
	return v.err
}

// Close ends the verification; the files can be closed then.
func (v *Verification) Close() {
	if v != nil {
		v.stop()
		<-v.done
	}
}
