package study

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	lockFile     = vfs.LockFile    // held while the study runs; by several processes that share it
	lockPatience = 2 * time.Second // longer than anybody looks whether the lock is held
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] when another process runs the study.
var ErrLocked = errors.New("the study is running in another process")

// lock makes sure that no other process runs the study; shared, that none does which shares it with
// nobody. It goes with the process, however that ends.
func (s *Study) lock(ctx context.Context, shared bool) (vfs.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	path := s.at(lockFile)
	if shared {
		l, err := path.AwaitSharedLock(ctx, lockRetry)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("%s: %w that shares it with nobody", s.Out, ErrLocked)
		}
		return l, err
	}
	l, err := path.AwaitLock(ctx, lockRetry)
	if errors.Is(err, context.DeadlineExceeded) {
		if alone, err := path.Locked(); err == nil && !alone {
			return nil, fmt.Errorf("%s: %w that shares it: --share takes part", s.Out, ErrLocked)
		}
		return nil, fmt.Errorf("%s: %w", s.Out, ErrLocked)
	}
	return l, err
}

// tidy removes what killed processes have left in the study's directory. Nobody else may run the
// study.
func (s *Study) tidy() error {
	if err := removeAbandoned(s.at(), rundir.StudyFile, runningFile); err != nil {
		return err
	}
	if _, err := runningCells(s.at()); err != nil {
		return fmt.Errorf("%w. It is no list of running cells: move it away", err)
	}
	return setRunning(s.at(), map[string]Holder{})
}

// awaitFree waits until no process holds a lock: one that lost its parent may still be saving its
// last checkpoint, or answering.
func awaitFree(ctx context.Context, lock vfs.Path) error {
	l, err := lock.AwaitLock(ctx, lockRetry)
	if err != nil {
		return err
	}
	return l.Unlock()
}
