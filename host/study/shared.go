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

// claim takes a cell for this process. Without a lock there is nothing to do now: another process
// works on the cell, or has done so since the plan was made, or the model is not there yet that it
// is made of.
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

// again reads the state of a cell that has been claimed, and reports whether it is still to be
// trained: another process may have done that after the plan was made.
func (r *runner) again(ctx context.Context, c Cell) (State, bool) {
	planned := r.stateOf(c)
	now := []Result{r.study.readCellResult(c, false)}
	var survey Survey
	if planned == Stale {
		r.surveying.Lock()
		defer r.surveying.Unlock()
		survey = r.opts.Survey
	}
	// What cannot be compared was none that the plan found stale.
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
	if err != nil { // it has not failed, or nobody knows how often
		return 0
	}
	return f.Attempts
}

// awaitOthers waits until one of the cells that were put off can be claimed.
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

// membersDir has a file for each process that shares the study with others. The process holds a
// lock on it and writes into it again and again. So whoever gets that lock, and still sees the file
// change, knows that locks do not hold between the two.
const membersDir = ".members"

// The names and the contents of such files, by which they are told from those of somebody else.
var (
	memberName    = regexp.MustCompile(`^.+-\d+-[0-9a-f]{8}$`)
	memberContent = regexp.MustCompile(`^(\d+\n)?$`)
)

const maxBeat = 64 // bytes of content, and more than it has

const (
	beat  = time.Second
	watch = 4 * beat // longer than a process that is alive takes to write
)

// ErrLocks is returned by [Run] for a study to be shared in a directory where locks do not hold.
var ErrLocks = errors.New("locks do not hold on this file system, so that two processes would train one cell")

// refuse is the error about the locks of the study's directory.
func (s *Study) refuse(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; want a file system whose locks hold on all machines (NFS without nolock and local_lock, Lustre with flock), or one process and no --share",
		s.Out, ErrLocks, fmt.Sprintf(format, args...))
}

// join makes this process a member of those that share the study until leave is called. It fails
// where locks do not hold.
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

// enter makes the file of a member. It gets its name once it is locked, so that nobody takes it for
// one that was left.
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

// beats writes into the file of a member until stop is called. That it cannot be written for a
// while does no harm: it shows others that locks do not hold, and nothing else.
func (s *Study) beats(file vfs.Path) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, beat) {
			// To close the file brings what was written to other machines.
			if f, err := file.OpenFile(os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", time.Now().UnixNano()), 0)
				_ = f.Close()
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// meet looks at the files of all other members. Those that can be locked must have been left by
// processes that were killed: they are watched for a while, and removed. What is no file of a
// member stays as it is.
func (s *Study) meet(ctx context.Context, dir vfs.Path, self string) error {
	entries, err := dir.ReadDir()
	if err != nil {
		return err
	}
	var locks []vfs.Lock
	defer func() {
		for _, l := range locks {
			_ = l.Unlock() // which goes with the file that it was on
		}
	}()
	left := map[string]string{} // what they held, by name
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
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrTooLarge) { // it left just now, or was none
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
