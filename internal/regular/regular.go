// Package regular opens files that must be regular files: data, checkpoints,
// configurations, tokenizers.
//
// If a named pipe is opened in the usual way, the reader waits for a writer that may
// never come; a device may deliver data without end. Here both are errors at once, and so
// are directories and sockets.
package regular

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Error is the cause of the [fs.PathError] that is returned for anything but a regular
// file.
type Error struct{ Mode fs.FileMode }

// Error says what kind of file it is.
func (e *Error) Error() string {
	what := "is no file"
	switch {
	case e.Mode.IsDir():
		what = "is a directory"
	case e.Mode&fs.ModeSymlink != 0:
		what = "is a symbolic link"
	case e.Mode&fs.ModeNamedPipe != 0:
		what = "is a named pipe"
	case e.Mode&fs.ModeSocket != 0:
		what = "is a socket"
	case e.Mode&fs.ModeDevice != 0:
		what = "is a device"
	}
	return what + ": want a regular file"
}

// Is reports a directory as syscall.EISDIR, as the operating system does.
func (e *Error) Is(target error) bool { return target == syscall.EISDIR && e.Mode.IsDir() }

// Open opens a file for reading.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// OpenFile opens a file with flags of package os. It does not wait for the other end of a
// named pipe; for regular files this makes no difference.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK|syscall.O_NOCTTY, perm)
	if err != nil {
		if info, statErr := os.Stat(name); statErr == nil && !info.Mode().IsRegular() {
			return nil, refusal(name, info)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refusal(name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile returns the content of a file.
func ReadFile(name string) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

func refusal(name string, info fs.FileInfo) error {
	return &fs.PathError{Op: "open", Path: name, Err: &Error{info.Mode()}}
}
