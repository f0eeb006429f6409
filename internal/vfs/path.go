package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Path is the name of a file or directory together with the file system that it is on.
// Without a file system it is on [OS].
type Path struct {
	FS   FS
	Name string
}

// At is a path on the file system of the operating system.
func At(name string) Path { return Path{FS: OS, Name: name} }

// On is a path on a file system; nil means [OS].
func On(fsys FS, name string) Path { return Path{FS: fsys, Name: name} }

func (p Path) fs() FS {
	if p.FS == nil {
		return OS
	}
	return p.FS
}

// String is the name, for messages.
func (p Path) String() string { return p.Name }

// Join is the path below p with these elements.
func (p Path) Join(elem ...string) Path {
	return Path{p.FS, filepath.Join(append([]string{p.Name}, elem...)...)}
}

// Dir is the directory that p is in.
func (p Path) Dir() Path { return Path{p.FS, filepath.Dir(p.Name)} }

// Base is the last element of the name.
func (p Path) Base() string { return filepath.Base(p.Name) }

// Open opens the file for reading.
func (p Path) Open() (File, error) { return p.OpenFile(os.O_RDONLY, 0) }

// OpenFile opens the file with flags of package os.
func (p Path) OpenFile(flag int, perm fs.FileMode) (File, error) {
	return p.fs().OpenFile(p.Name, flag, perm)
}

// ReadFile returns the content of the file.
func (p Path) ReadFile() ([]byte, error) {
	f, err := p.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// ReadSmallFile returns the content of the file; one of more than limit bytes is refused, so that
// no file of a stranger takes all memory.
func (p Path) ReadSmallFile(limit int64) ([]byte, error) {
	f, err := p.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is too large: want at most %d bytes", p, limit)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return content, nil
}

// ReadDir lists the directory in the order of names.
func (p Path) ReadDir() ([]fs.DirEntry, error) { return p.fs().ReadDir(p.Name) }

// Stat describes the file.
func (p Path) Stat() (fs.FileInfo, error) { return p.fs().Stat(p.Name) }

// Exists tells whether there is a file or directory.
func (p Path) Exists() (bool, error) {
	_, err := p.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Unused is the path below p of the first of the names, for n = 1, 2, …, that no file has.
func (p Path) Unused(name func(n int) string) (Path, error) {
	for n := 1; ; n++ {
		path := p.Join(name(n))
		if there, err := path.Exists(); err != nil || !there {
			return path, err
		}
	}
}

// Rename gives the file a new name on the same file system.
func (p Path) Rename(to string) error { return p.fs().Rename(p.Name, to) }

// Remove removes a file or an empty directory.
func (p Path) Remove() error { return p.fs().Remove(p.Name) }

// SyncDir makes what was created, renamed and removed in the directory durable.
func (p Path) SyncDir() error { return p.fs().SyncDir(p.Name) }

// MkdirAll makes the directory and those above it that are missing, durably.
func (p Path) MkdirAll() error {
	info, err := p.Stat()
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return &fs.PathError{Op: "mkdir", Path: p.Name, Err: errors.New("is a file, not a directory")}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := p.Dir()
	if above.Name != p.Name {
		if err := above.MkdirAll(); err != nil {
			return err
		}
	}
	if err := p.fs().Mkdir(p.Name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return above.SyncDir()
}

// LockFile is the name of the file that is locked while a directory is worked on. Where the directory goes on to be used
// it stays, as a hidden file: were it removed, two processes could hold locks on files of that name.
const LockFile = ".lock"

// Lock takes the lock on the file or returns [ErrLocked] at once.
func (p Path) Lock() (Lock, error) { return p.fs().Lock(p.Name) }

// Locked tells whether somebody holds the lock on the file.
func (p Path) Locked() (bool, error) { return p.fs().Locked(p.Name) }

// AwaitLock takes the lock on the file as soon as it is free, and looks for that every
// retry. When ctx ends first, the error is that of ctx.
func (p Path) AwaitLock(ctx context.Context, retry time.Duration) (Lock, error) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := p.Lock()
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
