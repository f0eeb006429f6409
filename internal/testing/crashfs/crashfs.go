// Package crashfs records a program's changes to a directory and then simulates power failures. It
// creates directories that contain everything that was synced, part of the rest, and garbage for
// some unsynced bytes. It is for tests only.
//
// The simulated disk guarantees little. The content of a file is durable only after File.Sync. A
// name (created, renamed, removed) is durable only after SyncDir of its directory; unsynced changes
// of names may survive in part and out of order. A rename is atomic.
package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// FS is [vfstest.NoSync], except that it records all changes below a root directory.
type FS struct {
	vfs.FS // handles operations that change nothing
	root   string
	base   int // number of events that stand for the initial files

	mu   sync.Mutex
	next int // number of the next file or directory
	// number of each existing file and directory, by path relative to root, which is ""
	names  map[string]int
	sizes  map[int]int64 // sizes of existing files
	events []event
}

// event is a change or a sync. Files are identified by number, because names may change.
type event struct {
	kind   kind
	dir    int    // link, unlink, rename, syncdir
	name   string // link, unlink, rename: the new name
	from   string // rename: the old name
	id     int    // link, rename, write, truncate, sync
	isDir  bool   // link
	offset int64  // write; truncate: the size
	data   []byte // write
}

type kind string

const (
	link     kind = "link"
	unlink   kind = "unlink"
	rename   kind = "rename"
	write    kind = "write"
	truncate kind = "truncate"
	syncFile kind = "sync"
	syncDir  kind = "syncdir"
)

// New returns an FS that records changes below root, which must exist. Files that already exist
// count as synced.
func New(root string) (*FS, error) {
	f := &FS{FS: vfstest.NoSync, root: filepath.Clean(root), next: 1, names: map[string]int{"": 0},
		sizes: map[int]int64{}}
	err := filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == f.root {
			return err
		}
		id := f.add(f.below(path), d.IsDir())
		if d.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		f.write(id, content, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	for name, id := range f.names {
		info, err := os.Stat(filepath.Join(f.root, name))
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			f.events = append(f.events, event{kind: syncDir, dir: id})
		} else {
			f.events = append(f.events, event{kind: syncFile, id: id})
		}
	}
	f.base = len(f.events)
	return f, nil
}

// Moments returns the number of moments at which power can fail so far. Moment m is after the first
// m events.
func (f *FS) Moments() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events) - f.base
}

// below returns a path relative to the root. It panics if the path is not below the root, because
// the program under test must not write elsewhere.
func (f *FS) below(path string) string {
	rel, err := filepath.Rel(f.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		panic(fmt.Sprintf("crashfs: %s is not below %s", path, f.root))
	}
	if rel == "." {
		return ""
	}
	return rel
}

// parent returns the number of a path's parent directory, and the name in it.
func (f *FS) parent(path string) (dir int, name string) {
	dir, ok := f.names[strings.TrimPrefix(filepath.Dir("/"+path), "/")]
	if !ok {
		panic("crashfs: the directory of " + path + " is not known")
	}
	return dir, filepath.Base(path)
}

// add records a new name.
func (f *FS) add(path string, isDir bool) (id int) {
	id = f.next
	f.next++
	dir, name := f.parent(path)
	f.names[path] = id
	f.events = append(f.events, event{kind: link, dir: dir, name: name, id: id, isDir: isDir})
	return id
}

func (f *FS) write(id int, data []byte, offset int64) {
	if len(data) == 0 {
		return
	}
	f.sizes[id] = max(f.sizes[id], offset+int64(len(data)))
	f.events = append(f.events, event{kind: write, id: id, offset: offset,
		data: append([]byte{}, data...)})
}

// done records the event if the operation succeeded.
func (f *FS) done(err error, e event) error {
	if err == nil {
		f.events = append(f.events, e)
	}
	return err
}

// OpenFile implements vfs.FS.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inner, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	path := f.below(name)
	id, known := f.names[path]
	if !known {
		id = f.add(path, false)
	}
	if flag&os.O_TRUNC != 0 && f.sizes[id] > 0 {
		f.sizes[id] = 0
		f.events = append(f.events, event{kind: truncate, id: id})
	}
	return &file{File: inner, fs: f, id: id, appends: flag&os.O_APPEND != 0}, nil
}

// Mkdir implements vfs.FS.
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.FS.Mkdir(name, perm); err != nil {
		return err
	}
	f.add(f.below(name), true)
	return nil
}

// Rename implements vfs.FS, but only within one directory.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, b := f.below(from), f.below(to)
	dir, old := f.parent(a)
	other, name := f.parent(b)
	if dir != other {
		return errors.New("crashfs: rename between directories is not supported")
	}
	if err := f.FS.Rename(from, to); err != nil {
		return err
	}
	id := f.names[a]
	delete(f.names, a)
	f.names[b] = id
	f.events = append(f.events, event{kind: rename, dir: dir, name: name, from: old, id: id})
	return nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.FS.Remove(name); err != nil {
		return err
	}
	path := f.below(name)
	dir, base := f.parent(path)
	delete(f.names, path)
	f.events = append(f.events, event{kind: unlink, dir: dir, name: base})
	return nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done(f.FS.SyncDir(name), event{kind: syncDir, dir: f.names[f.below(name)]})
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (vfs.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := f.FS.Lock(name)
	if path := f.below(name); err == nil && f.names[path] == 0 {
		f.add(path, false)
	}
	return l, err
}

// file is an open file whose writes are recorded.
type file struct {
	vfs.File
	fs      *FS
	id      int
	appends bool
	at      int64 // offset of the next write that does not append
}

// Unwrap returns the underlying file for vfs.OSFile.
func (f *file) Unwrap() vfs.File { return f.File }

func (f *file) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	offset := f.at
	if f.appends {
		offset = f.fs.sizes[f.id]
	}
	n, err := f.File.Write(p)
	f.fs.write(f.id, p[:n], offset)
	f.at = offset + int64(n)
	return n, err
}

func (f *file) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.File.WriteAt(p, offset)
	f.fs.write(f.id, p[:n], offset)
	return n, err
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.at += int64(n)
	return n, err
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	at, err := f.File.Seek(offset, whence)
	f.at = at
	return at, err
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	if size != f.fs.sizes[f.id] {
		f.fs.sizes[f.id] = size
		f.fs.events = append(f.fs.events, event{kind: truncate, id: f.id, offset: size})
	}
	return nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.done(f.File.Sync(), event{kind: syncFile, id: f.id})
}
