package study

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
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

// Which process works on which cell, on which machine, and since when, is in files beside the locks
// that they go with:
//
//	.lock       held by the process that runs the study; by several that share it, together
//	.running    the cells of a process that does not share the study
//	.claims/ID  held by the process that works on the cell, where several share the study
//
// A lock ends with its process. What a file says counts only while its lock is held.

// Names in the directory of a study.
const (
	runningFile = ".running"
	claimsDir   = ".claims"
)

// Holder is a process that works on a cell. Of one that has not said yet who it is, all is empty.
type Holder struct {
	Machine string    `json:"machine"`
	Process int       `json:"process"`
	Task    string    `json:"task,omitempty"` // of a job array of Slurm: JOB_INDEX
	Since   time.Time `json:"since"`
}

// MachineVariable is the variable of the environment that names the machine where its host name
// does not: a pod of Kubernetes has a host name of its own.
const MachineVariable = "CAGE_MACHINE"

// Self is this process as a holder since some time.
func self(since time.Time) Holder {
	host, _ := os.Hostname() // without a name it is one without a name
	h := Holder{Machine: cmp.Or(os.Getenv(MachineVariable), os.Getenv("SLURMD_NODENAME"), host), Process: os.Getpid(), Since: since.Round(0)}
	if job := os.Getenv("SLURM_ARRAY_JOB_ID"); job != "" {
		h.Task = job + "_" + os.Getenv("SLURM_ARRAY_TASK_ID")
	}
	return h
}

// Text says who it is: "node3 since 12:01:30, task 17_4".
func (h Holder) Text(now time.Time) string {
	if h.Since.IsZero() {
		return "a machine that is not known yet"
	}
	since, now := h.Since.Local(), now.Local()
	format := "2006-01-02 15:04"
	if since.Format(time.DateOnly) == now.Format(time.DateOnly) {
		format = time.TimeOnly
	}
	text := cmp.Or(h.Machine, "a machine without a name") + " since " + since.Format(format)
	if h.Task != "" {
		text += ", task " + h.Task
	}
	return text
}

// claimFile is the lock of a cell. It lies outside of the cell's directory, which is moved away
// when its run is stale.
func claimFile(study vfs.Path, id string) vfs.Path { return study.Join(claimsDir, id) }

// takeClaim claims a cell for this process, or returns [vfs.ErrLocked]. It is an error if the
// claim's file holds anything that no process wrote which took the claim. That it cannot be written
// down who has it does no harm.
func takeClaim(study vfs.Path, id string) (vfs.Lock, error) {
	claim := claimFile(study, id)
	if err := claim.Dir().MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := claim.Lock()
	if err != nil {
		return nil, err
	}
	if err := atomicfile.CheckOurs(claim, signature); err != nil { // nobody else writes now
		return nil, errors.Join(err, lock.Unlock())
	}
	if text, err := json.Marshal(self(time.Now())); err == nil {
		if f, err := claim.OpenFile(os.O_WRONLY|os.O_TRUNC, 0); err == nil {
			_, _ = f.Write(append(text, '\n'))
			_ = f.Close()
		}
	}
	return lock, nil
}

// signature reports whether content is what sign writes, or what a loss of power leaves of it.
func signature(content io.Reader) bool {
	text, err := io.ReadAll(io.LimitReader(content, maxHolder+1))
	if err != nil || len(text) > maxHolder {
		return false
	}
	var h Holder
	return len(bytes.Trim(text, "\x00")) == 0 || plainjson.UnmarshalStrict(text, &h) == nil && !h.Since.IsZero()
}

// setRunning writes down the cells that a process works on which shares the study with nobody.
func setRunning(study vfs.Path, cells map[string]Holder) error {
	text, err := json.Marshal(cells)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(study.Join(runningFile), append(text, '\n'))
}

// Holders returns who works on which cell, by the cells' IDs.
func Holders(study vfs.Path) (map[string]Holder, error) {
	lock := study.Join(vfs.LockFile)
	alone, err := lock.Locked()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lock, err)
	}
	if alone {
		return runningCells(study)
	}
	entries, err := study.Join(claimsDir).ReadDir() // of processes that share the study
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cells := map[string]Holder{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		claim := claimFile(study, e.Name())
		locked, err := claim.Locked()
		if err != nil {
			return nil, err
		}
		if locked { // a claim that was taken a moment ago may not say by whom
			var h Holder
			if text, err := claim.ReadSmallFile(maxHolder); err != nil || plainjson.Unmarshal(text, &h) != nil {
				h = Holder{}
			}
			cells[e.Name()] = h
		}
	}
	return cells, nil
}

// Files are not longer than this.
const (
	maxHolder  = 4 << 10 // of a holder
	maxRunning = 1 << 20 // of all cells that one process works on
)

// runningCells reads the cells of a process that shares the study with nobody.
func runningCells(study vfs.Path) (map[string]Holder, error) {
	file := study.Join(runningFile)
	text, err := file.ReadSmallFile(maxRunning)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var cells map[string]Holder
	if err := plainjson.UnmarshalStrict(text, &cells); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cells, nil
}
