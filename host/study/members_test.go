package study

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cage-qat/cage/internal/vfs"
)

// locks is a file system with a different implementation of locks.
type locks struct {
	vfs.FS
	lock func(name string) (vfs.Lock, error)
}

func (l locks) Lock(name string) (vfs.Lock, error) { return l.lock(name) }

// noLock is a lock that excludes no process.
type noLock struct{ vfs.Lock }

func (noLock) Unlock() error { return nil }

// TestLocksHeldByTwo checks that a study cannot be shared if locks exclude no process.
func TestLocksHeldByTwo(t *testing.T) {
	s := &Study{Out: t.TempDir(), Files: locks{vfs.OS, func(name string) (vfs.Lock, error) {
		return noLock{}, os.WriteFile(name, nil, 0o600)
	}}}
	_, err := s.claim(t.Context(), "a", true, nil)
	if !errors.Is(err, ErrLocks) || !strings.Contains(err.Error(), "one file could be locked twice") ||
		!strings.HasPrefix(err.Error(), s.Out) {
		t.Error(err)
	}
}

// TestLocksThatDoNotHold checks that the claim of a killed process is taken over. If another
// process writes to a claim file that this process has locked, locks do not work between the two,
// whichever came first.
func TestLocksThatDoNotHold(t *testing.T) {
	for _, c := range []struct {
		name         string
		before       string // content of the file
		first, later bool   // the other process writes while this one claims the cell, or holds it
	}{
		{"new", "", false, false},
		{"killed", `{"machine":"m","process":7,"since":"2026-11-26T12:00:00Z","beat":5}`, false, false},
		{"alive", `{"machine":"m","process":7,"since":"2026-11-26T12:00:00Z","beat":5}`, true, false},
		{"comes later", "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Study{Out: t.TempDir()}
				file := claimFile(s.at(), "a")
				if err := errors.Join(file.Dir().MkdirAll(),
					os.WriteFile(file.Name, []byte(c.before), 0o600)); err != nil {
					t.Fatal(err)
				}
				other := func(beats int) {
					h := thisHolder(time.Now())
					h.Process, h.Beat = 7, beats
					if _, err := h.write(file, 0); err != nil {
						t.Error(err)
					}
				}
				if c.first {
					go func() { time.Sleep(heartbeatInterval); other(6) }()
				}
				var lost error
				began := time.Now()
				release, err := s.claim(t.Context(), "a", true, func(err error) { lost = err })
				if c.first != errors.Is(err, ErrLocks) || err != nil && !c.first {
					t.Fatal(err)
				}
				if watched := time.Since(began) >= watch; watched != (c.before != "") {
					t.Errorf("the file was watched: %v", watched)
				}
				if err != nil {
					return
				}
				time.Sleep(5*heartbeatInterval + heartbeatInterval/2) // between two writes
				if c.later {
					other(1)
					time.Sleep(2 * heartbeatInterval)
				}
				if c.later != errors.Is(lost, ErrLocks) || lost != nil && !c.later {
					t.Errorf("lost: %v", lost)
				}
				if err := release(); err != nil {
					t.Error(err)
				}
				if text, err := file.ReadFile(); err != nil || strings.Contains(string(text), "beat") {
					t.Errorf("left behind: %s, %v", text, err)
				}
			})
		})
	}
}
