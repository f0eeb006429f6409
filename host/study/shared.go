package study

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/internal/vfs"
)

// claim takes a cell for this process. It returns no lock if there is nothing to do now: another
// process works on the cell, or has done so since the plan was made, or the source of the cell's
// model is not ready.
func (r *runner) claim(ctx context.Context, c Cell) (vfs.Lock, error) {
	var lock vfs.Lock
	err := vfs.ErrLocked
	if _, decided, _ := r.source(c); decided {
		lock, err = takeClaim(r.study.at(), c.ID)
	}
	if errors.Is(err, vfs.ErrLocked) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.later = append(r.later, c)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, again := r.again(ctx, c)
	if again && ctx.Err() == nil {
		return lock, nil
	}
	if ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states[c.ID], r.found = now, r.found+1
	}
	return nil, lock.Unlock()
}

// again reads the state of a claimed cell, and reports whether it still has to be trained: another
// process may have done that since the plan was made.
func (r *runner) again(ctx context.Context, c Cell) (State, bool) {
	planned := r.stateOf(c)
	now := []Result{r.study.readCellResult(c, false)}
	var survey Survey
	if planned == Stale {
		r.surveying.Lock()
		defer r.surveying.Unlock()
		survey = r.opts.Survey
	}
	// Cells that cannot be compared keep their state; the plan did not find them stale.
	_ = r.study.FindStale(ctx, now, survey)
	switch state := now[0].State; state {
	case Done:
		return state, false
	case Failed:
		return state, planned == Failed && r.attempts[c.ID] == r.study.attempts(c)
	default:
		return state, true
	}
}

func (s *Study) attempts(c Cell) int {
	f, err := readFailure(s.dir(c))
	if err != nil { // it has not failed, or the number is unknown
		return 0
	}
	return f.Attempts
}

// awaitOthers waits until one of the postponed cells can be claimed.
func (r *runner) awaitOthers(ctx context.Context) {
	if len(r.later) == 0 || len(r.stopped) > 0 {
		return
	}
	free := func(c Cell) bool {
		locked, err := claimFile(r.study.at(), c.ID).Locked()
		_, decided, _ := r.source(c)
		return err != nil || !locked && decided // claiming it reports the error
	}
	for {
		pause(ctx, interval)
		if ctx.Err() != nil || slices.ContainsFunc(r.later, free) {
			return
		}
	}
}

// membersDir has a file for each process that shares the study. The process holds a lock on it and
// writes to it regularly. So a process that gets that lock, and still sees the file change, knows
// that locks do not hold between the two.
const membersDir = ".members"

// The names and contents of such files, which distinguish them from files of other programs.
var (
	memberName    = regexp.MustCompile(`^.+-\d+-[0-9a-f]{8}$`)
	memberContent = regexp.MustCompile(`^(\d+\n)?$`)
)

const maxBeat = 64 // bytes; more than the content of such a file

const (
	beat  = time.Second
	watch = 4 * beat // longer than a live process takes between two writes
)

// ErrLocks is returned by [Run] if a study is to be shared in a directory where locks do not hold.
var ErrLocks = errors.New("locks do not hold on this file system, so that two processes would train one cell")

// refuse returns the error that locks do not hold in the study's directory.
func (s *Study) refuse(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; want a file system whose locks hold on all machines (NFS without nolock and local_lock, Lustre with flock), or one process and no --share",
		s.Out, ErrLocks, fmt.Sprintf(format, args...))
}

// join makes this process a member of those that share the study, until leave is called. It fails
// if locks do not hold.
func (s *Study) join(ctx context.Context) (leave func() error, err error) {
	dir := s.at(membersDir)
	if err := dir.MkdirAll(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d-%08x", notInFileNames.ReplaceAllString(host, "-"), os.Getpid(), rand.Uint32())
	lock, err := s.enter(dir, name)
	if err != nil {
		return nil, err
	}
	stop := s.beats(dir.Join(name))
	leave = func() error {
		stop()
		return errors.Join(dir.Join(name).Remove(), lock.Unlock())
	}
	if err := s.meet(ctx, dir, name); err != nil {
		return nil, errors.Join(err, leave())
	}
	return leave, nil
}

// enter makes the file of a member. It locks the file before it gives it its final name, so that no
// process takes it for one that a killed process left.
func (s *Study) enter(dir vfs.Path, name string) (vfs.Lock, error) {
	temp := dir.Join("." + name)
	lock, err := temp.Lock()
	if err != nil {
		return nil, s.refuse("%v", err)
	}
	again, err := temp.Lock()
	switch {
	case err == nil:
		err = s.refuse("one file could be locked twice")
		return nil, errors.Join(err, again.Unlock(), lock.Unlock(), temp.Remove())
	case !errors.Is(err, vfs.ErrLocked):
		return nil, errors.Join(s.refuse("%v", err), lock.Unlock(), temp.Remove())
	}
	if err := temp.Rename(dir.Join(name)); err != nil {
		return nil, errors.Join(err, lock.Unlock(), temp.Remove())
	}
	return lock, nil
}

// beats writes to the file of a member regularly until stop is called. A failure to write for a
// while does no harm: the writes only show other processes that locks do not hold.
func (s *Study) beats(file vfs.Path) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, beat) {
			// Closing the file makes the write visible to other machines.
			if f, err := file.OpenFile(os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", time.Now().UnixNano()), 0)
				_ = f.Close()
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// meet checks the files of all other members. A file that can be locked must have been left by a
// process that was killed: meet watches it for a while, and then removes it. A file that is not a
// member's is left unchanged.
func (s *Study) meet(ctx context.Context, dir vfs.Path, self string) error {
	entries, err := dir.ReadDir()
	if err != nil {
		return err
	}
	var locks []vfs.Lock
	defer func() {
		for _, l := range locks {
			_ = l.Unlock() // an error does no harm: the lock ends with its file
		}
	}()
	left := map[string]string{} // content of such files, by name
	for _, e := range entries {
		if e.Name() == self || !e.Type().IsRegular() || e.Name()[0] == '.' || !memberName.MatchString(e.Name()) {
			continue
		}
		file := dir.Join(e.Name())
		lock, err := file.Lock()
		if errors.Is(err, vfs.ErrLocked) {
			continue
		}
		if err != nil {
			return s.refuse("%v", err)
		}
		locks = append(locks, lock)
		text, err := file.ReadSmallFile(maxBeat)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrTooLarge) { // it has just left, or it is no member's file
			continue
		}
		if err != nil {
			return err
		}
		if memberContent.Match(text) {
			left[e.Name()] = string(text)
		}
	}
	if len(left) == 0 {
		return nil
	}
	pause(ctx, watch)
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	for name, was := range left {
		file := dir.Join(name)
		text, err := file.ReadSmallFile(maxBeat)
		if err == nil && string(text) != was {
			return s.refuse("this process has got a lock that another one holds, %s", name)
		}
		if err == nil {
			err = file.Remove()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
