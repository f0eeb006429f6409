// Package faultfs provides a file system whose i-th operation fails, alone or with all later ones,
// as on a full or broken disk. Tests run a program for i = 0, 1, 2, … until nothing fails any more,
// and check each time that the fault is reported and that nothing is lost.
package faultfs

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// Kind is the kind of an operation.
type Kind string

const (
	Create   Kind = "create" // opens a file that may not exist yet
	Open     Kind = "open"
	Read     Kind = "read"
	Write    Kind = "write"
	Sync     Kind = "sync"
	Truncate Kind = "truncate"
	Close    Kind = "close"
	Mkdir    Kind = "mkdir"
	ReadDir  Kind = "readdir"
	Stat     Kind = "stat"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	SyncDir  Kind = "syncdir"
	Lock     Kind = "lock"
)

// Op is a recorded operation.
type Op struct {
	Index int // number of the operation, from 0, in the order in which operations begin
	Kind  Kind
	Path  string // for a rename, the old path
}

// String formats the operation, as in "17 rename run/.run.toml#". # stands for the random number in
// the name of a temporary file.
func (o Op) String() string {
	return fmt.Sprintf("%d %s %s", o.Index, o.Kind, temporary.ReplaceAllString(o.Path, "$1#"))
}

// temporary matches the names of temporary files of internal/atomicfile.
var temporary = regexp.MustCompile(`(/\.[^/]*[^/0-9])[0-9]+$`)

// Error is the error of an injected fault. It wraps ENOSPC if the operation needed space, and EIO
// otherwise.
type Error struct {
	Op  Op
	Err error
}

func (e *Error) Error() string { return "injected fault " + e.Op.String() + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// FS is a file system with the faults described by [New].
type FS struct {
	inner   vfs.FS
	fail    int
	forever bool

	mu    sync.Mutex
	ops   []Op
	fired []Op
}

// New returns a file system in which operation i fails and, if forever is set, all later ones. If i
// is negative, nothing fails.
func New(inner vfs.FS, i int, forever bool) *FS {
	return &FS{inner: inner, fail: i, forever: forever}
}

// Ops returns the operations performed so far.
func (f *FS) Ops() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ops)
}

// Fired returns the operations that were made to fail.
func (f *FS) Fired() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fired)
}

// try counts an operation and performs it, unless it must fail.
func (f *FS) try(kind Kind, path string, do func() error) error {
	if err := f.begin(kind, path); err != nil {
		return err
	}
	return do()
}

// get is like try, for operations with a result.
func get[T any](f *FS, kind Kind, path string, do func() (T, error)) (result T, err error) {
	err = f.try(kind, path, func() (err error) {
		result, err = do()
		return err
	})
	return result, err
}

// begin counts an operation. It returns the injected fault, or nil if there is none.
func (f *FS) begin(kind Kind, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := Op{len(f.ops), kind, path}
	f.ops = append(f.ops, op)
	if f.fail < 0 || op.Index < f.fail || op.Index > f.fail && !f.forever {
		return nil
	}
	f.fired = append(f.fired, op)
	switch kind {
	case Create, Write, Mkdir, Rename:
		return &Error{op, syscall.ENOSPC}
	}
	return &Error{op, syscall.EIO}
}

// OpenFile implements vfs.FS.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	kind := Open
	if flag&os.O_CREATE != 0 {
		kind = Create
	}
	if err := f.begin(kind, name); err != nil {
		return nil, err
	}
	inner, err := f.inner.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{inner, f}, nil
}

// Mkdir implements vfs.FS.
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.try(Mkdir, name, func() error { return f.inner.Mkdir(name, perm) })
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	return get(f, ReadDir, name, func() ([]fs.DirEntry, error) { return f.inner.ReadDir(name) })
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	return get(f, Stat, name, func() (fs.FileInfo, error) { return f.inner.Stat(name) })
}

// Lstat implements vfs.FS.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	return get(f, Stat, name, func() (fs.FileInfo, error) { return f.inner.Lstat(name) })
}

// Rename implements vfs.FS.
func (f *FS) Rename(from, to string) error {
	return f.try(Rename, from, func() error { return f.inner.Rename(from, to) })
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.try(Remove, name, func() error { return f.inner.Remove(name) })
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	return f.try(SyncDir, name, func() error { return f.inner.SyncDir(name) })
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (vfs.Lock, error) {
	return get(f, Lock, name, func() (vfs.Lock, error) { return f.inner.Lock(name) })
}

// LockShared implements vfs.FS.
func (f *FS) LockShared(name string) (vfs.Lock, error) {
	return get(f, Lock, name, func() (vfs.Lock, error) { return f.inner.LockShared(name) })
}

// Locked implements vfs.FS.
func (f *FS) Locked(name string) (bool, error) {
	return get(f, Lock, name, func() (bool, error) { return f.inner.Locked(name) })
}

// file is an open file of an FS.
type file struct {
	vfs.File
	fs *FS
}

// Unwrap returns the underlying file for vfs.OSFile.
func (f *file) Unwrap() vfs.File { return f.File }

func (f *file) Read(p []byte) (int, error) {
	return get(f.fs, Read, f.Name(), func() (int, error) { return f.File.Read(p) })
}

func (f *file) ReadAt(p []byte, offset int64) (int, error) {
	return get(f.fs, Read, f.Name(), func() (int, error) { return f.File.ReadAt(p, offset) })
}

// Write writes only half of p if it fails.
func (f *file) Write(p []byte) (int, error) {
	if err := f.fs.begin(Write, f.Name()); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		return n, errors.Join(err, werr)
	}
	return f.File.Write(p)
}

// WriteAt writes only half of p if it fails.
func (f *file) WriteAt(p []byte, offset int64) (int, error) {
	if err := f.fs.begin(Write, f.Name()); err != nil {
		n, werr := f.File.WriteAt(p[:len(p)/2], offset)
		return n, errors.Join(err, werr)
	}
	return f.File.WriteAt(p, offset)
}

func (f *file) Stat() (fs.FileInfo, error) { return get(f.fs, Stat, f.Name(), f.File.Stat) }

func (f *file) Sync() error { return f.fs.try(Sync, f.Name(), f.File.Sync) }

func (f *file) Truncate(size int64) error {
	return f.fs.try(Truncate, f.Name(), func() error { return f.File.Truncate(size) })
}

// Close closes the file even if it returns an injected fault, as POSIX systems do.
func (f *file) Close() error {
	err := f.fs.begin(Close, f.Name())
	return errors.Join(err, f.File.Close())
}

// Each yields file systems based on [vfstest.NoSync] in which operation 0, every, 2·every, … fails,
// until a program runs without a failure. It does this twice: first only that operation fails, then
// also all later ones. It fails the test if it stops at an operation before least.
func Each(t testing.TB, every, least int) iter.Seq[*FS] {
	return func(yield func(*FS) bool) {
		for _, forever := range []bool{false, true} {
			for i := 0; ; i += every {
				files := New(vfstest.NoSync, i, forever)
				if !yield(files) {
					return
				}
				if len(files.Fired()) > 0 {
					continue
				}
				if i < least {
					t.Errorf("%d operations were made to fail, want at least %d", i, least)
				}
				t.Logf("forever %v: %d operations failed in turn", forever, (i+every-1)/every)
				break
			}
		}
	}
}

// What describes the injected fault.
func (f *FS) What() string {
	fired := f.Fired()
	if len(fired) == 0 {
		return "nothing failed"
	}
	return fmt.Sprintf("%s failed, forever %v", fired[0], f.forever)
}

// Reported fails the test if err does not report the injected fault or, if there was none, is not
// nil. It returns a description of the fault.
func (f *FS) Reported(t testing.TB, err error) (what string) {
	t.Helper()
	what = f.What()
	switch {
	case len(f.Fired()) == 0:
		if err != nil {
			t.Errorf("%s, but got error %v", what, err)
		}
	case !strings.Contains(fmt.Sprint(err), "injected fault"):
		t.Errorf("%s, but the error does not report it: %v", what, err)
	}
	return what
}
