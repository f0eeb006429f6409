package vfs

import (
	"errors"
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
