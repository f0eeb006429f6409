package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Data, checkpoints, configurations and tokenizers must be regular files.
//
// If a named pipe is opened in the usual way, the reader waits for a writer that may never come; a
// device may deliver data without end. Here both are errors at once, and so are directories,
// sockets and Git LFS pointers: small texts that stand for files which were not downloaded.

// NotRegularError is the cause of the [fs.PathError] for anything but a regular file.
type NotRegularError struct{ Mode fs.FileMode }

// Error says what kind of file it is.
func (e *NotRegularError) Error() string {
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
func (e *NotRegularError) Is(target error) bool { return target == syscall.EISDIR && e.Mode.IsDir() }

// OpenRegular opens a regular file for reading.
func OpenRegular(name string) (*os.File, error) { return openRegular(name, os.O_RDONLY, 0) }

// openRegular opens a regular file with flags of package os. It does not wait for the other end of a
// named pipe; for regular files this makes no difference.
func openRegular(name string, flag int, perm fs.FileMode) (*os.File, error) {
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
	if err == nil && flag&(os.O_WRONLY|os.O_RDWR) == 0 && info.Size() <= MaxPointer {
		begin := make([]byte, info.Size())
		if n, _ := f.ReadAt(begin, 0); IsPointer(begin[:n]) { // an error comes back when it is read
			err = &fs.PathError{Op: "open", Path: name, Err: ErrPointer}
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadRegular returns the content of a regular file.
func ReadRegular(name string) ([]byte, error) {
	f, err := OpenRegular(name)
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
	return &fs.PathError{Op: "open", Path: name, Err: &NotRegularError{info.Mode()}}
}

// ErrPointer is the cause of the [fs.PathError] for a Git LFS pointer that is opened for reading.
var ErrPointer = errors.New(
	"is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")

// MaxPointer bounds the size of a Git LFS pointer, in bytes.
const MaxPointer = 1024

// IsPointer reports whether the content of a file is a Git LFS pointer, as git-lfs defines it in
// its docs/spec.md.
func IsPointer(content []byte) bool {
	text := string(content)
	named := strings.HasPrefix(text, "version https://git-lfs.github.com/spec/") ||
		strings.HasPrefix(text, "version https://hawser.github.com/spec/")
	return named && len(text) <= MaxPointer && strings.Contains(text, "\noid sha256:")
}
