package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoLocks checks that the error for a file system without locks names the file and a remedy.
func TestNoLocks(t *testing.T) {
	for _, cause := range []error{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		err := lockError("run/.lock", cause)
		if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "lock run/.lock: ") ||
			!strings.Contains(err.Error(), "want a directory on a local disk") {
			t.Errorf("%v", err)
		}
	}
	if err := lockError("run/.lock", syscall.EIO); err == nil ||
		err.Error() != "lock run/.lock: input/output error" {
		t.Errorf("%v", err)
	}
	if err := lockError("run/.lock", nil); err != nil {
		t.Errorf("%v", err)
	}
}

// TestLockFile checks that other users can look whether a file is locked.
func TestLockFile(t *testing.T) {
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	name := filepath.Join(t.TempDir(), ".lock")
	l, err := OS.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := OS.Locked(name); !locked || err != nil {
		t.Errorf("locked: %t, %v", locked, err)
	}
	if _, err := OS.Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}
