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
	"sync"
	"time"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	lockFile     = vfs.LockFile    // held while the study runs; a shared lock with --share
	lockPatience = 2 * time.Second // longer than any check of the lock holds it
	lockRetry    = 20 * time.Millisecond
)

// ErrLocked is returned by [Run] if another process is running the study.
var ErrLocked = errors.New("the study is running in another process")

// lock locks the study against other processes; if shared is set, only against processes that do
// not share it.
func (s *Study) lock(ctx context.Context, shared bool) (vfs.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	path, other := s.at(lockFile), ""
	await := path.AwaitLock
	if shared {
		await, other = path.AwaitSharedLock, " without --share"
	}
	l, err := await(ctx, lockRetry)
	if !errors.Is(err, context.DeadlineExceeded) {
		return l, err
	}
	if alone, err := path.Locked(); !shared && err == nil && !alone {
		other = ", with --share: pass --share to join it"
	}
	return nil, fmt.Errorf("%s: %w%s", s.Out, ErrLocked, other)
}

// awaitFree waits until no process holds the lock: a process whose parent has died may still be
// saving its last checkpoint, or answering questions.
func awaitFree(ctx context.Context, lock vfs.Path) error {
	l, err := lock.AwaitLock(ctx, lockRetry)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// claimsDir is the directory that has a file for each cell. The process that works on the cell has
// written its [Holder] to the file and keeps the file locked. The lock ends with the process; if
// there is no lock, the content is meaningless.
const claimsDir = ".claims"

// Holder is a process that works on a cell. It is zero if the process has not written its file yet.
type Holder struct {
	Machine string    `json:"machine"`
	Process int       `json:"process"`
	Task    string    `json:"task,omitempty"` // JOB_INDEX in a job array of Slurm
	Since   time.Time `json:"since"`
	// Beat counts how often the process has rewritten the file, if the process shares the study.
	Beat int `json:"beat,omitempty"`
}

// MachineVariable is the environment variable that names the machine if its host name does not: a
// Kubernetes pod has a host name of its own.
const MachineVariable = "CAGE_MACHINE"

// thisHolder returns a Holder for this process that holds the cell since the given time.
func thisHolder(since time.Time) Holder {
	host, _ := os.Hostname() // without a host name, the machine has no name
	machine := cmp.Or(os.Getenv(MachineVariable), os.Getenv("SLURMD_NODENAME"), host)
	h := Holder{Machine: machine, Process: os.Getpid(), Since: since.Round(0)}
	if job := os.Getenv("SLURM_ARRAY_JOB_ID"); job != "" {
		h.Task = job + "_" + os.Getenv("SLURM_ARRAY_TASK_ID")
	}
	return h
}

// Text describes the holder, as in "node3 since 12:01:30, task 17_4".
func (h Holder) Text(now time.Time) string {
	if h.Since.IsZero() {
		return "a machine that is not known yet"
	}
	text := cmp.Or(h.Machine, "a machine without a name") + " since " + TimeText(h.Since, now)
	if h.Task != "" {
		text += ", task " + h.Task
	}
	return text
}

// TimeText formats a time without its date if that is today.
func TimeText(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// claimFile returns the lock file of a cell. It is outside the cell's directory, because a stale
// cell's directory is moved away.
func claimFile(study vfs.Path, id string) vfs.Path { return study.Join(claimsDir, id) }

const (
	heartbeatInterval = time.Second           // between two writes of a process into its claims
	watch             = 4 * heartbeatInterval // longer than a live process takes between two writes
)

// ErrLocks is returned by [Run] if a study is shared, but file locks do not work in its directory.
var ErrLocks = errors.New("file locks do not work here: two processes would train the same cell")

// noLocks returns an error saying that file locks do not work in the study's directory, and why.
func (s *Study) noLocks(why string) error {
	return fmt.Errorf("%s: %w: %s; use a file system whose locks work across machines (NFS without "+
		"nolock and local_lock, Lustre with flock), or one process without --share", s.Out, ErrLocks, why)
}

// claim locks a cell for this process until release is called, or returns [vfs.ErrLocked]. It is an
// error if the claim file has content that was not written by claim.
//
// If the study is shared, claim checks that locks work between processes: if they do not, another
// process might write to the file although this one holds the lock. So a file left by a killed
// process is watched for a while. If a conflict is found after claim has returned, lost is called.
func (s *Study) claim(
	ctx context.Context, id string, share bool, lost func(error),
) (release func() error, err error) {
	file := claimFile(s.at(), id)
	if err := file.Dir().MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := file.Lock()
	if err != nil {
		return nil, err
	}
	if err = atomicfile.CheckOurs(file, isHolder); err == nil && share {
		err = s.checkLocks(ctx, file)
	}
	h := thisHolder(time.Now())
	if share {
		h.Beat = 1
	}
	var text []byte
	if err == nil {
		text, err = h.write(file, os.O_TRUNC)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if !share {
		return lock.Unlock, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var beats sync.WaitGroup
	beats.Go(func() {
		for pause(ctx, heartbeatInterval); ctx.Err() == nil; pause(ctx, heartbeatInterval) {
			now, err := file.ReadSmallFile(maxHolder)
			if err == nil && text != nil && !bytes.Equal(now, text) {
				lost(s.noLocks("another process has claimed the cell " + id))
				return
			}
			h.Beat++
			if text, err = h.write(file, 0); err != nil {
				text = nil // unknown; a missed beat does no harm
			}
		}
	})
	return func() error {
		cancel()
		beats.Wait()
		h.Beat = 0 // otherwise the next process would watch the file
		_, _ = h.write(file, os.O_TRUNC)
		return lock.Unlock()
	}, nil
}

// checkLocks returns an error if locks seem not to work between processes; see [Study.claim].
func (s *Study) checkLocks(ctx context.Context, file vfs.Path) error {
	if again, err := file.Lock(); err == nil {
		return errors.Join(s.noLocks("one file could be locked twice"), again.Unlock())
	}
	before, err := file.ReadSmallFile(maxHolder)
	if err != nil || !bytes.Contains(before, []byte(`"beat"`)) {
		return err
	}
	pause(ctx, watch)
	now, err := file.ReadSmallFile(maxHolder)
	if err == nil && !bytes.Equal(before, now) {
		return s.noLocks("this process acquired a lock that another process holds: " + file.Name)
	}
	return errors.Join(err, ctx.Err())
}

func (h Holder) write(file vfs.Path, flag int) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	text = append(text, '\n')
	f, err := file.OpenFile(os.O_WRONLY|flag, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(text, 0)
	return text, errors.Join(err, f.Close()) // closing makes it visible to other machines
}

// holderStart is the beginning of every claim that Holder.write writes.
const holderStart = `{"machine":"`

// isHolder reports whether content was written by Holder.write, perhaps only in part because the
// process was killed, or consists of zeros, as after a power loss.
func isHolder(content io.Reader) bool {
	text, err := io.ReadAll(io.LimitReader(content, maxHolder+1))
	if err != nil || len(text) > maxHolder {
		return false
	}
	lost := len(bytes.Trim(text, "\x00")) == 0
	return lost || bytes.HasPrefix(text, []byte(holderStart)) ||
		bytes.HasPrefix([]byte(holderStart), text)
}

const maxHolder = 4 << 10 // bytes; longer than a claim

// Holders returns the processes that are working on cells, by the cell's ID.
func Holders(study vfs.Path) (map[string]Holder, error) {
	entries, err := study.Join(claimsDir).ReadDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
		if locked {
			var h Holder
			text, err := claim.ReadSmallFile(maxHolder)
			if err != nil || plainjson.Unmarshal(text, &h) != nil {
				h = Holder{} // the process has not written it yet
			}
			cells[e.Name()] = h
		}
	}
	return cells, nil
}
