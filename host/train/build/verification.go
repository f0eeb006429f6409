package build

import (
	"context"

	"github.com/cage-qat/cage/host/data/dataset"
)

// Verification checks in the background that token files match their hashes. The first checkpoint
// waits for it, so that nothing computed from a damaged file is saved.
type Verification struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
}

// VerifyFiles starts to verify the given files, one after the other, in the background.
func VerifyFiles(files ...*dataset.File) *Verification {
	ctx, stop := context.WithCancel(context.Background())
	v := &Verification{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for _, f := range files {
			if v.err = f.Verify(ctx); v.err != nil {
				return
			}
		}
	}()
	return v
}

// Failed returns the error if a damaged file has been found, without waiting. Methods of a nil
// Verification return nil.
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

// Wait waits until all files are verified or verification fails, and returns the error.
func (v *Verification) Wait() error {
	if v == nil {
		return nil
	}
	<-v.done
	return v.err
}

// Close cancels the verification; the files can be closed afterwards.
func (v *Verification) Close() {
	if v != nil {
		v.stop()
		<-v.done
	}
}
