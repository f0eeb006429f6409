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
	lockFile     = vfs.LockFile    // held while the study runs; a shared lock with --share
	lockPatience = 2 * time.Second // longer than any check of the lock holds it
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] when another process runs the study.
var ErrLocked = errors.New("the study is running in another process")

// lock makes sure that no other process runs the study, or, if shared, that none runs it without
// sharing it. The lock is released when the process ends in any way.
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

// tidy removes temporary files and entries that killed processes left in the study's directory. No
// other process may be running the study.
func (s *Study) tidy() error {
	if err := removeAbandoned(s.at(), rundir.StudyFile, runningFile); err != nil {
		return err
	}
	if _, err := runningCells(s.at()); err != nil {
		return fmt.Errorf("%w. It is no list of running cells: move it away", err)
	}
	return setRunning(s.at(), map[string]Holder{})
}

// awaitFree waits until no process holds a lock: a process whose parent has died may still be
// saving its last checkpoint or answering questions.
func awaitFree(ctx context.Context, lock vfs.Path) error {
	l, err := lock.AwaitLock(ctx, lockRetry)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// Which process works on which cell, on which machine, and since when, is recorded in files that go
// with the locks:
//
//	.lock       locked by the process that runs the study, or jointly by those that share it
//	.running    the cells of a process that does not share the study
//	.claims/ID  locked by the process that works on the cell, if several share the study
//
// A lock ends with its process. The content of a file counts only while its lock is held.

// Names in the directory of a study.
const (
	runningFile = ".running"
	claimsDir   = ".claims"
)

// Holder is a process that works on a cell. It is zero if the process has not written its name yet.
type Holder struct {
	Machine string    `json:"machine"`
	Process int       `json:"process"`
	Task    string    `json:"task,omitempty"` // JOB_INDEX in a job array of Slurm
	Since   time.Time `json:"since"`
}

// MachineVariable is the environment variable that names the machine where its host name does not:
// a pod of Kubernetes has a host name of its own.
const MachineVariable = "CAGE_MACHINE"

// self returns this process as a Holder since the given time.
func self(since time.Time) Holder {
	host, _ := os.Hostname() // without a host name, the machine has no name
	h := Holder{Machine: cmp.Or(os.Getenv(MachineVariable), os.Getenv("SLURMD_NODENAME"), host), Process: os.Getpid(), Since: since.Round(0)}
	if job := os.Getenv("SLURM_ARRAY_JOB_ID"); job != "" {
		h.Task = job + "_" + os.Getenv("SLURM_ARRAY_TASK_ID")
	}
	return h
}

// Text describes the holder: "node3 since 12:01:30, task 17_4".
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

// claimFile returns the lock file of a cell. It is outside of the cell's directory, because that is
// moved away when its run is stale.
func claimFile(study vfs.Path, id string) vfs.Path { return study.Join(claimsDir, id) }

// takeClaim claims a cell for this process, or returns [vfs.ErrLocked]. It is an error if the
// claim's file has content that no claiming process wrote. A failure to write the holder into the
// file is ignored.
func takeClaim(study vfs.Path, id string) (vfs.Lock, error) {
	claim := claimFile(study, id)
	if err := claim.Dir().MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := claim.Lock()
	if err != nil {
		return nil, err
	}
	if err := atomicfile.CheckOurs(claim, signature); err != nil { // no other process writes now
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

// signature reports whether content is what takeClaim writes, or what a loss of power leaves of it.
func signature(content io.Reader) bool {
	text, err := io.ReadAll(io.LimitReader(content, maxHolder+1))
	if err != nil || len(text) > maxHolder {
		return false
	}
	var h Holder
	return len(bytes.Trim(text, "\x00")) == 0 || plainjson.UnmarshalStrict(text, &h) == nil && !h.Since.IsZero()
}

// setRunning records the cells that a process works on which does not share the study.
func setRunning(study vfs.Path, cells map[string]Holder) error {
	text, err := json.Marshal(cells)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(study.Join(runningFile), append(text, '\n'))
}

// Holders returns the process that works on each cell, by the cell's ID.
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
		if locked { // the file of a claim that was taken just now may not name its holder yet
			var h Holder
			if text, err := claim.ReadSmallFile(maxHolder); err != nil || plainjson.Unmarshal(text, &h) != nil {
				h = Holder{}
			}
			cells[e.Name()] = h
		}
	}
	return cells, nil
}

// Size limits of files, in bytes.
const (
	maxHolder  = 4 << 10 // a claim
	maxRunning = 1 << 20 // the cells of one process
)

// runningCells reads the cells of a process that does not share the study.
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
