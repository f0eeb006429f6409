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
