// Package supervisor keeps a plugin and all its descendants together: on Linux the
// program runs below a small process of its own, which is this executable again and does
// nothing else.
//
// Processes that a plugin starts can leave its process group (setsid) and lose their
// parent. Then they belong to nobody, and a host that kills the group does not find them.
// The supervisor is the subreaper of all processes below it, so that orphans become its
// children, and it ends only when none is left. It lives as long as the thread that
// started it: if the host is killed, it kills them, too. It also sets the memory limit,
// before the plugin's first instruction, for the plugin and each of its descendants.
//
// What remains is a plugin that kills its supervisor first, which it can, as both run
// with the same rights. Then the kernel kills the plugin itself, but not the processes it
// has started.
//
// It is a package of its own with few imports, so that Go initializes it before the packages that
// take time: the small process starts in about 1 ms.
//
// Other systems have neither subreapers nor signals on the death of a parent. There, this
// package only explains why a program could not be started.
package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Explain returns an error that explains why a program could not be started; nil for nil.
func Explain(path string, err error) error {
	_, missing := os.Stat(path)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%s is neither a program for this machine nor a script with #! and an interpreter in its first line", path)
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		return fmt.Errorf("the interpreter of %s, which its first line names after #!, or a loader that it needs, does not exist", path)
	}
	return err
}
