package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	lockFile     = vfs.LockFile    // held while the study runs; by several processes that share it
	runningFile  = ".running"      // which cells run while one process holds it
	claimsDir    = ".claims"       // the locks of cells in a study that is shared
	lockPatience = 2 * time.Second // longer than anybody looks whether the lock is held
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] when another process runs the study.
var ErrLocked = errors.New("the study is running in another process")

// lock makes sure that no other process runs the study; shared, that none does which shares it with nobody. It goes with the
// process, however that ends.
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

// tidy removes what killed processes have left in the study's directory. Nobody else may run the study.
func (s *Study) tidy() error {
	if err := removeAbandoned(s.at(), rundir.StudyFile, runningFile); err != nil {
		return err
	}
	return s.setRunning()
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
		return s.claimed()
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

// claim is the lock of a cell in a study that several processes share: the one that holds it works on the cell. It lies outside of
// the cell's directory, which is moved away when the run is stale.
func (s *Study) claim(c Cell) vfs.Path { return s.at(claimsDir, c.ID) }

// claimed returns the IDs of the cells that processes work on which share the study.
func (s *Study) claimed() ([]string, error) {
	entries, err := s.at(claimsDir).ReadDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		locked, err := s.at(claimsDir, e.Name()).Locked()
		if err != nil {
			return nil, err
		}
		if locked {
			ids = append(ids, e.Name())
		}
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
