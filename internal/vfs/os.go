package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// OS is the file system of the operating system.
var OS FS = osFS{}

type osFS struct{}

// OpenFile opens regular files only: a named pipe in place of a checkpoint must not make
// its reader wait.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := openRegular(name, flag, perm)
	if err != nil {
		return nil, err // f in its place would be a File that is not nil
	}
	return f, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (osFS) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFS) Remove(name string) error                   { return os.Remove(name) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(name string) (Lock, error) { return take(name, (*flock.Flock).TryLock) }

func (osFS) LockShared(name string) (Lock, error) { return take(name, (*flock.Flock).TryRLock) }

// take creates a file if necessary and takes a lock on it.
func take(name string, try func(*flock.Flock) (bool, error)) (Lock, error) {
	if _, err := lockFileAt(name); err != nil {
		return nil, err
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

// lockError names the file, and what to do where its file system has no locks.
func lockError(name string, err error) error {
	if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
		err = &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	for _, none := range []error{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w; its file system has no locks, or its lock service does not run: want a "+
				"directory on another one (a local disk, NFS with its lock service, Lustre with flock)", err)
		}
	}
	return err
}

// lockFileAt reports whether there is a file to be locked, which must be a regular one: see regular.go. Where that
// cannot be told, opening it tells why.
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

// OSFile returns the operating system's file behind f, which can be passed to a process.
// A file that wraps another one must have a method Unwrap() File.
func OSFile(f File) (*os.File, error) {
	for {
		switch inner := f.(type) {
		case *os.File:
			return inner, nil
		case interface{ Unwrap() File }:
			f = inner.Unwrap()
		default:
			return nil, errors.New("not a file of the operating system: " + f.Name())
		}
	}
}
