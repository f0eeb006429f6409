// Package vfs is the small interface to the file system through which every file that
// is kept is written, and read back: run directories, studies, datasets, reports. In
// production it is [OS]; tests put in file systems that fail, or that lose power.
//
// How to replace a file safely is in internal/atomicfile. Files of the user that are only
// read (source texts, configurations), sockets and build caches do not go through here.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// FS is a file system. Its methods do what the functions of package os of the same
// names do.
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(name string) error

	// SyncDir makes what was created, renamed and removed in a directory durable.
	SyncDir(name string) error
	// Lock creates the file if need be and takes the one lock on it, or returns
	// [ErrLocked] at once. The lock ends with the process, however that ends.
	Lock(name string) (Lock, error)
	// Locked tells whether somebody holds the lock on a file; nobody does when there
	// is no file. While it looks, Lock may fail.
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

// Lock is a lock that is held.
type Lock interface {
	// Stat describes the locked file, which need not be the one at its path any more.
	Stat() (fs.FileInfo, error)
	Unlock() error
}

// ErrLocked is returned by FS.Lock for a lock that somebody else holds.
var ErrLocked = errors.New("another process holds the lock")

// SameFile tells whether two descriptions are of one file. File systems other than [OS]
// tell their files apart by fs.FileInfo.Sys.
func SameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) || a.Sys() != nil && a.Sys() == b.Sys()
}
