// Package vfs defines a small interface to the file system, through which all persistent files (run
// directories, studies, datasets, reports) are written and read. In production, the file system is
// [OS]; tests use file systems that fail or simulate a power failure.
//
// It is also used for files of the user that are only read (source texts, configurations), because
// [OS] opens only regular files. Files are replaced safely by internal/atomicfile. Sockets and
// build caches do not use this package.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// FS is a file system. Its methods work like the functions of the same names in package os.
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(name string) error

	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock on the file, which it creates if necessary, or returns
	// [ErrLocked] immediately. The lock is released when the process ends for any reason.
	Lock(name string) (Lock, error)
	// LockShared is like Lock for a shared lock, which excludes exclusive locks.
	LockShared(name string) (Lock, error)
	// Locked reports whether any process holds an exclusive lock on the file. It returns false if
	// the file does not exist. It can make a concurrent Lock fail with ErrLocked.
	Locked(name string) (bool, error)
}

// File is the part of *os.File that this program needs.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}

// Lock is a lock that is held.
type Lock interface {
	// Stat returns information about the locked file, which may no longer be the file at its path.
	Stat() (fs.FileInfo, error)
	Unlock() error
}

// ErrLocked is returned by FS.Lock if the lock is held elsewhere.
var ErrLocked = errors.New("another process holds the lock")

// SameFile reports whether a and b describe the same file. File systems other than [OS] identify
// files by fs.FileInfo.Sys.
func SameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) || a.Sys() != nil && a.Sys() == b.Sys()
}
