package build

import (
	"context"

	"github.com/cage-qat/cage/host/data/dataset"
)

// Verification compares token files with their hashes while the first steps run. The first
// checkpoint waits for it, so that nothing computed from a damaged file is saved.
type Verification struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
}

// VerifyFiles starts the verification of files, one after the other.
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

// Failed returns the error found so far. A nil Verification has no files to check and never fails.
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

// Wait returns when all files are verified, or a damaged one is found.
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
