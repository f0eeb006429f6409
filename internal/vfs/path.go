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

// Path is the name of a file or directory together with its file system. Without a file
// system it is on [OS].
type Path struct {
	FS   FS
	Name string
}

// At returns a path on the file system of the operating system.
func At(name string) Path { return Path{FS: OS, Name: name} }

// On returns a path on a file system; nil means [OS].
func On(fsys FS, name string) Path { return Path{FS: fsys, Name: name} }

func (p Path) fs() FS {
	if p.FS == nil {
		return OS
	}
	return p.FS
}

// String returns the name, for messages.
func (p Path) String() string { return p.Name }

// Join returns the path below p with these elements.
func (p Path) Join(elem ...string) Path {
	return Path{p.FS, filepath.Join(append([]string{p.Name}, elem...)...)}
}

// Dir returns the directory that contains p.
func (p Path) Dir() Path { return Path{p.FS, filepath.Dir(p.Name)} }

// Base returns the last element of the name.
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

// ReadSmallFile returns the content of the file. A file of more than limit bytes is refused, so that an untrusted file
// cannot take all memory.
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

// ReadDir lists the directory, sorted by name.
func (p Path) ReadDir() ([]fs.DirEntry, error) { return p.fs().ReadDir(p.Name) }

// Stat describes the file.
func (p Path) Stat() (fs.FileInfo, error) { return p.fs().Stat(p.Name) }

// Lstat describes the file; of a symbolic link, the link itself.
func (p Path) Lstat() (fs.FileInfo, error) { return p.fs().Lstat(p.Name) }

// Exists reports whether there is a file or directory at the path.
func (p Path) Exists() (bool, error) {
	_, err := p.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Unused returns the path below p with the first of the names, for n = 1, 2, …, that no file has.
func (p Path) Unused(name func(n int) string) (Path, error) {
	for n := 1; ; n++ {
		path := p.Join(name(n))
		if there, err := path.Exists(); err != nil || !there {
			return path, err
		}
	}
}

// Rename renames the file, within the same file system.
func (p Path) Rename(to string) error { return p.fs().Rename(p.Name, to) }

// Remove removes a file or an empty directory.
func (p Path) Remove() error { return p.fs().Remove(p.Name) }

// RemoveAll removes a file, or a directory with all that is in it. A symbolic link is removed, and never followed.
func (p Path) RemoveAll() error {
	info, err := p.Lstat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		list, err := p.ReadDir()
		if err != nil {
			return err
		}
		for _, entry := range list {
			if err := p.Join(entry.Name()).RemoveAll(); err != nil {
				return err
			}
		}
	}
	return p.Remove()
}

// SyncDir makes all creations, renames and removals in the directory durable.
func (p Path) SyncDir() error { return p.fs().SyncDir(p.Name) }

// MkdirAll creates the directory and all missing directories above it, durably.
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

// LockFile is the name of the file that is locked while a directory is being worked on. If the directory stays in use,
// the lock file stays, too, as a hidden file: if it were removed, two processes could hold locks on files with that
// name.
const LockFile = ".lock"

// Lock locks the file, or returns [ErrLocked] at once.
func (p Path) Lock() (Lock, error) { return p.fs().Lock(p.Name) }

// LockShared takes a lock that any number may hold at the same time, or returns [ErrLocked] at once.
func (p Path) LockShared() (Lock, error) { return p.fs().LockShared(p.Name) }

// Locked reports whether anybody holds the lock on the file.
func (p Path) Locked() (bool, error) { return p.fs().Locked(p.Name) }

// AwaitLock locks the file as soon as it is free, checking every retry. If ctx ends
// first, the error is that of ctx.
func (p Path) AwaitLock(ctx context.Context, retry time.Duration) (Lock, error) {
	return await(ctx, retry, p.Lock)
}

// AwaitSharedLock is [Path.AwaitLock] for a lock that others may share.
func (p Path) AwaitSharedLock(ctx context.Context, retry time.Duration) (Lock, error) {
	return await(ctx, retry, p.LockShared)
}

func await(ctx context.Context, retry time.Duration, take func() (Lock, error)) (Lock, error) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := take()
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
