package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	lockFile     = vfs.LockFile    // held while the study runs
	runningFile  = ".running"      // which cells run while it is held
	lockPatience = 2 * time.Second // longer than anybody looks whether the lock is held
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] when another process runs the study.
var ErrLocked = errors.New("the study is running in another process")

// lock makes sure that no other process runs the study. It goes with the process,
// however that ends.
func (s *Study) lock(ctx context.Context) (vfs.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	l, err := s.at(lockFile).AwaitLock(ctx, lockRetry)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s: %w", s.Out, ErrLocked)
	}
	return l, err
}

// setRunning writes down which cells run.
func (s *Study) setRunning(ids ...string) error {
	if ids == nil {
		ids = []string{} // written as [], not as null
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(s.at(runningFile), append(text, '\n'))
}

// running returns the IDs of the cells that are being trained.
func (s *Study) running() ([]string, error) {
	locked, err := s.at(lockFile).Locked()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.at(lockFile), err)
	}
	if !locked {
		return nil, nil
	}
	text, err := s.at(runningFile).ReadFile()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	if err := plainjson.Unmarshal(text, &ids); err != nil {
		return nil, fmt.Errorf("%s: %w", s.at(runningFile), err)
	}
	return ids, nil
}

// awaitFree waits until no process holds a lock: one that lost its parent may still be saving its last checkpoint, or answering.
func awaitFree(ctx context.Context, lock vfs.Path) error {
	l, err := lock.AwaitLock(ctx, lockRetry)
	if err != nil {
		return err
	}
	return l.Unlock()
}
