package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

// OpenFile opens only regular files, so that opening a named pipe instead of a checkpoint does not
// block.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := openRegular(name, flag, perm)
	if err != nil {
		return nil, err // returning f would return a non-nil File
	}
	return f, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (osFS) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFS) Remove(name string) error                   { return os.Remove(name) }

// SyncDir does nothing for a directory that cannot be read, or whose file system cannot sync
// directories: what was written to it is complete.
func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func (osFS) Lock(name string) (Lock, error) { return take(name, (*flock.Flock).TryLock) }

func (osFS) LockShared(name string) (Lock, error) { return take(name, (*flock.Flock).TryRLock) }

// take locks a file, which it creates if necessary.
func take(name string, try func(*flock.Flock) (bool, error)) (Lock, error) {
	there, err := lockFileAt(name)
	if err != nil {
		return nil, err
	}
	if !there { // other users may look whether it is locked; flock's own files are private
		f, err := openRegular(name, os.O_RDONLY|os.O_CREATE, 0o644)
		if err != nil {
			return nil, lockError(name, err)
		}
		_ = f.Close()
	}
	l := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDONLY|syscall.O_NONBLOCK))
	held, err := try(l)
	if err != nil {
		return nil, lockError(name, err)
	}
	if !held {
		return nil, ErrLocked
	}
	return l, nil
}

func (osFS) Locked(name string) (bool, error) {
	if there, err := lockFileAt(name); !there {
		return false, err
	}
	l := flock.New(name, flock.SetFlag(os.O_RDONLY|syscall.O_NONBLOCK))
	free, err := l.TryRLock()
	if err != nil || !free {
		return err == nil, lockError(name, err)
	}
	return false, l.Unlock()
}

// lockError adds the file name to err and, if the file system does not support locks, a remedy.
func lockError(name string, err error) error {
	if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
		err = &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	for _, none := range []error{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w; the file system does not support locks, or its lock service is not "+
				"running: want a directory on a local disk, NFS with a lock service, or Lustre with flock", err)
		}
	}
	return err
}

// lockFileAt reports whether a lock file exists. It returns an error if the file is not regular. If
// Stat fails, it returns true, because opening the file reports that error.
func lockFileAt(name string) (there bool, err error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		return false, &fs.PathError{Op: "lock", Path: name, Err: &NotRegularError{Mode: info.Mode()}}
	}
	return true, nil
}

// OSFile returns the *os.File behind f, so that it can be passed to a process. Files that wrap
// another one must have a method Unwrap() File.
func OSFile(f File) (*os.File, error) {
	for {
		switch inner := f.(type) {
		case *os.File:
			return inner, nil
		case interface{ Unwrap() File }:
			f = inner.Unwrap()
		default:
			return nil, errors.New("not an operating system file: " + f.Name())
		}
	}
}

// Data, checkpoints, configurations and tokenizers must be regular files.
//
// If a named pipe is opened in the usual way, the reader waits for a writer that may never come; a
// device may deliver data without end. [OS] returns an error immediately, and also for directories,
// sockets and Git LFS pointers, which are small text files in place of files that were not
// downloaded.

// NotRegularError is wrapped by the [fs.PathError] for a file that is not regular.
type NotRegularError struct{ Mode fs.FileMode }

// Error implements error. It describes the type of the file.
func (e *NotRegularError) Error() string {
	what := "is not a file"
	for mode, name := range map[fs.FileMode]string{
		fs.ModeDir: "directory", fs.ModeSymlink: "symbolic link", fs.ModeNamedPipe: "named pipe",
		fs.ModeSocket: "socket", fs.ModeDevice: "device",
	} {
		if e.Mode&mode != 0 {
			what = "is a " + name
		}
	}
	return what + ": want a regular file"
}

// Is makes the error for a directory match syscall.EISDIR, like that of the operating system.
func (e *NotRegularError) Is(target error) bool {
	return target == syscall.EISDIR && e.Mode.IsDir()
}

// openRegular opens a regular file with the flags of package os. It does not wait for the other end
// of a named pipe.
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
		if n, _ := f.ReadAt(begin, 0); IsPointer(begin[:n]) { // a read error recurs later
			err = &fs.PathError{Op: "open", Path: name, Err: ErrPointer}
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func refusal(name string, info fs.FileInfo) error {
	return &fs.PathError{Op: "open", Path: name, Err: &NotRegularError{info.Mode()}}
}

// ErrPointer is wrapped by the [fs.PathError] for a Git LFS pointer opened for reading.
var ErrPointer = errors.New(
	"is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")

// MaxPointer is the maximum size of a Git LFS pointer, in bytes.
const MaxPointer = 1024

// IsPointer reports whether content is a Git LFS pointer as defined in docs/spec.md of git-lfs.
func IsPointer(content []byte) bool {
	text := string(content)
	named := strings.HasPrefix(text, "version https://git-lfs.github.com/spec/") ||
		strings.HasPrefix(text, "version https://hawser.github.com/spec/")
	return named && len(text) <= MaxPointer && strings.Contains(text, "\noid sha256:")
}
