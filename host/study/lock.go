package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
)

const (
	lockFile     = ".lock"         // held while the study runs
	runningFile  = ".running"      // which cells run while it is held
	lockPatience = 2 * time.Second // longer than anybody looks whether the lock is held
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] when another process runs the study.
var ErrLocked = errors.New("the study is running in another process")

// lock makes sure that no other process runs the study. It goes with the process,
// however that ends.
func (s *Study) lock(ctx context.Context) (*flock.Flock, error) {
	l := flock.New(filepath.Join(s.Out, lockFile))
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	held, err := l.TryLockContext(ctx, lockRetry)
	if errors.Is(err, context.DeadlineExceeded) || err == nil && !held {
		return nil, fmt.Errorf("%s: %w", s.Out, ErrLocked)
	}
	return l, err
}

// setRunning writes down which cells run.
func (s *Study) setRunning(ids []string) error {
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(s.Out, runningFile), append(text, '\n'))
}

// running returns the IDs of the cells that are being trained.
func (s *Study) running() (map[string]bool, error) {
	path := filepath.Join(s.Out, lockFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := l.TryRLock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if free {
		return nil, l.Unlock()
	}
	text, err := os.ReadFile(filepath.Join(s.Out, runningFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	if err := json.Unmarshal(text, &ids); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.Out, runningFile), err)
	}
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}

// awaitFree waits until no process trains in a run directory: one that lost its parent
// may still be saving its last checkpoint.
func awaitFree(ctx context.Context, dir string) error {
	l := flock.New(rundir.Lock(dir))
	if _, err := l.TryLockContext(ctx, lockRetry); err != nil {
		return err
	}
	return l.Unlock()
}
