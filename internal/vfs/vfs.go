// Package vfs is a small interface to the file system. All persistent files (run directories,
// studies, datasets, reports) are written and read back through it. In production the file system
// is [OS]; tests use file systems that fail, or that simulate a loss of power.
//
// Replacing a file safely is the task of internal/atomicfile. The user's files that are only read
// (source texts, configurations), sockets and build caches do not use this package.
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

	// SyncDir makes all creations, renames and removals in a directory durable.
	SyncDir(name string) error
	// Lock creates the file if necessary and takes an exclusive lock on it, or returns [ErrLocked]
	// at once. The lock ends with the process, however that ends.
	Lock(name string) (Lock, error)
	// LockShared is Lock for a shared lock, which excludes exclusive ones.
	LockShared(name string) (Lock, error)
	// Locked reports whether any process holds the lock on a file; it is false if the file does not
	// exist. A concurrent Lock can fail with ErrLocked.
	Locked(name string) (bool, error)
}

// File is an open file, as *os.File is.
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

// Lock is a held lock.
type Lock interface {
	// Stat describes the locked file, which may no longer be the one at its path.
	Stat() (fs.FileInfo, error)
	Unlock() error
}

// ErrLocked is returned by FS.Lock if another holder has the lock.
var ErrLocked = errors.New("another process holds the lock")

// SameFile reports whether two descriptions are of the same file. File systems other than
// [OS] distinguish their files by fs.FileInfo.Sys.
func SameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) || a.Sys() != nil && a.Sys() == b.Sys()
}
