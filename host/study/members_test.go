package study

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cage-qat/cage/internal/vfs"
)

// locks is a file system with other locks.
type locks struct {
	vfs.FS
	lock func(name string) (vfs.Lock, error)
}

func (l locks) Lock(name string) (vfs.Lock, error) { return l.lock(name) }

// noLock is held by nobody.
type noLock struct{ vfs.Lock }

func (noLock) Unlock() error { return nil }

// TestLocksThatDoNotHold: a study is not shared where locks keep nobody out.
func TestLocksThatDoNotHold(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lock       func(string) (vfs.Lock, error)
	}{
		{"held by several", "one file could be locked twice", func(name string) (vfs.Lock, error) {
			return noLock{}, os.WriteFile(name, nil, 0o600)
		}},
		{"none", "no locks available", func(name string) (vfs.Lock, error) {
			return nil, &os.PathError{Op: "flock", Path: name, Err: syscall.ENOLCK}
		}},
	} {
		s := &Study{Out: t.TempDir(), Files: locks{vfs.OS, c.lock}}
		_, err := s.join(t.Context())
		if !errors.Is(err, ErrLocks) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), s.Out) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left, err := filepath.Glob(filepath.Join(s.Out, membersDir, "*")); len(left) > 0 || err != nil {
			t.Errorf("%s: left behind: %q, %v", c.name, left, err)
		}
	}
}

// TestMembers: one that was killed is forgotten, one whose lock holds is let be, and one that writes although this process has its
// lock shows that locks do not hold between the two.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *Study, other vfs.Path)
		want error
		left int
	}{
		{"killed", func(*testing.T, *Study, vfs.Path) {}, nil, 0},
		{"alive", func(t *testing.T, s *Study, other vfs.Path) {
			lock, err := other.Lock()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.beats(other))
			t.Cleanup(func() { lock.Unlock() })
		}, nil, 1},
		{"its lock does not hold", func(t *testing.T, s *Study, other vfs.Path) { t.Cleanup(s.beats(other)) }, ErrLocks, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Study{Out: t.TempDir()}
				other := s.at(membersDir, "elsewhere-7-0123abcd")
				if err := other.Dir().MkdirAll(); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(other.Name, []byte("1\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				c.do(t, s, other)
				leave, err := s.join(t.Context())
				if !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
				if err == nil {
					time.Sleep(2 * beat)
					if err := leave(); err != nil {
						t.Error(err)
					}
				}
				if left, err := other.Dir().ReadDir(); err != nil || len(left) != c.left {
					t.Errorf("%d members are left, want %d: %v", len(left), c.left, err)
				}
			})
		})
	}
}
