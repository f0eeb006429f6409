package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Path is the name of a file or directory in a file system; a nil file system means [OS].
//
// Names passed to [At] or [On] come from the user and may contain symbolic links. [Path.Join] adds
// the names of files and directories created by cage, which are never links. If one of these is a
// link, methods that create, change, rename or remove something return an error.
type Path struct {
	FS   FS
	Name string

	joined int // number of the last elements of Name that Join added
}

// At returns a path in the operating system's file system.
func At(name string) Path { return Path{FS: OS, Name: name} }

// On returns a path in a file system; nil means [OS].
func On(fsys FS, name string) Path { return Path{FS: fsys, Name: name} }

func (p Path) fs() FS {
	if p.FS == nil {
		return OS
	}
	return p.FS
}

// String returns the name, for messages.
func (p Path) String() string { return p.Name }

// Join returns p with these elements appended.
func (p Path) Join(elem ...string) Path {
	added := filepath.Join(elem...)
	if added != "" && added != "." {
		p.joined += 1 + strings.Count(added, string(filepath.Separator))
	}
	p.Name = filepath.Join(p.Name, added)
	return p
}

// Dir returns the directory that contains p.
func (p Path) Dir() Path { return Path{p.FS, filepath.Dir(p.Name), max(0, p.joined-1)} }

// Base returns the last element of the name.
func (p Path) Base() string { return filepath.Base(p.Name) }

// Open opens the file for reading.
func (p Path) Open() (File, error) { return p.OpenFile(os.O_RDONLY, 0) }

// OpenFile opens the file with the flags of package os. For writing, it opens neither symbolic
// links nor files with several hard links, because writing would change a file under another name.
func (p Path) OpenFile(flag int, perm fs.FileMode) (File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 && p.joined > 0 {
		info, err := p.lstat()
		if err != nil {
			return nil, err
		}
		if info != nil && flag&os.O_EXCL == 0 && info.Mode().IsRegular() &&
			info.Sys().(*syscall.Stat_t).Nlink > 1 {
			return nil, fmt.Errorf("%s already exists and has several hard links, whose content would "+
				"change, too; move it away, or replace it by a copy", p)
		}
		flag |= syscall.O_NOFOLLOW
	}
	return p.fs().OpenFile(p.Name, flag, perm)
}

// lstat returns information about the file without following a symbolic link, or nil if there is no
// file. It returns an error if an element that Join added is a symbolic link.
//
// It calls the operating system directly, because all implementations of FS store their files
// there. As a method of FS, it would slow down fault-injection tests without finding more errors.
func (p Path) lstat() (found fs.FileInfo, err error) {
	for i, at := 0, p.Name; i < max(1, p.joined); i, at = i+1, filepath.Dir(at) {
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return nil, err
		case i < p.joined && info.Mode()&fs.ModeSymlink != 0:
			return nil, fmt.Errorf("%s is a symbolic link, which cage did not create and does not follow; "+
				"move it away", at)
		case i == 0:
			found = info
		}
	}
	return found, nil
}

// CheckLinks returns an error if an element that Join added is a symbolic link. Methods that change
// something do the same.
func (p Path) CheckLinks() error {
	_, err := p.lstat()
	return err
}

// Replaceable returns an error if the path exists and is not a regular file.
func (p Path) Replaceable() error {
	info, err := p.lstat()
	if err == nil && info != nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s already exists and %w; move it away", p, &NotRegularError{Mode: info.Mode()})
	}
	return err
}

// Permissions returns the permissions of the regular file at the path, or those given if there is
// none.
func (p Path) Permissions(otherwise fs.FileMode) fs.FileMode {
	if info, err := p.lstat(); err == nil && info != nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return otherwise
}

// maxFile is the size limit of ReadFile, in bytes.
const maxFile = 1 << 28

// ReadFile returns the content of the file. More than maxFile bytes are an error.
func (p Path) ReadFile() ([]byte, error) { return p.ReadSmallFile(maxFile) }

// ErrTooLarge is wrapped by the error for a file that exceeds a size limit.
var ErrTooLarge = errors.New("is too large")

// ReadSmallFile returns the content of the file. More than limit bytes are an error, so that an
// untrusted file cannot exhaust memory.
func (p Path) ReadSmallFile(limit int64) ([]byte, error) {
	f, err := p.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s %w: want at most %d bytes", p, ErrTooLarge, limit)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return content, nil
}

// ReadDir returns the directory's entries, sorted by name.
func (p Path) ReadDir() ([]fs.DirEntry, error) { return p.fs().ReadDir(p.Name) }

// Stat returns information about the file.
func (p Path) Stat() (fs.FileInfo, error) { return p.fs().Stat(p.Name) }

// Lstat returns information about the file without following a symbolic link.
func (p Path) Lstat() (fs.FileInfo, error) { return p.fs().Lstat(p.Name) }

// Exists reports whether a file or directory exists at the path.
func (p Path) Exists() (bool, error) {
	_, err := p.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Unused returns the path of the first name, for n = 1, 2, …, that does not exist in p.
func (p Path) Unused(name func(n int) string) (Path, error) {
	for n := 1; ; n++ {
		path := p.Join(name(n))
		if _, err := path.Lstat(); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return path, err
		}
	}
}

// Rename renames a file or directory within a file system. It replaces only regular files.
func (p Path) Rename(to Path) error {
	if err := p.CheckLinks(); err != nil {
		return err
	}
	if err := to.Replaceable(); err != nil {
		return err
	}
	return p.fs().Rename(p.Name, to.Name)
}

// Remove removes a regular file. It is an error if the path is anything else.
func (p Path) Remove() error {
	if err := p.Replaceable(); err != nil {
		return err
	}
	return p.fs().Remove(p.Name)
}

// RemoveDir removes an empty directory.
func (p Path) RemoveDir() error {
	info, err := p.lstat()
	if err == nil && info != nil && !info.IsDir() {
		err = &fs.PathError{Op: "rmdir", Path: p.Name, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return err
	}
	return p.fs().Remove(p.Name)
}

// RemoveAll removes a file, or a directory with its content. It does not follow symbolic links but
// removes them. It is for the content of directories that cage has marked as its own.
func (p Path) RemoveAll() error {
	if err := p.Dir().CheckLinks(); err != nil {
		return err
	}
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
	return p.fs().Remove(p.Name)
}

// SyncDir makes creations, renames and removals in the directory durable.
func (p Path) SyncDir() error { return p.fs().SyncDir(p.Name) }

// MkdirAll durably creates the directory and any missing parents.
func (p Path) MkdirAll() error {
	if err := p.CheckLinks(); err != nil {
		return err
	}
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

// LockFile is the name of the file that is locked while a process works on a directory. It is
// hidden, and stays in directories that remain in use: if it were removed, two processes could
// hold locks on different files of that name.
const LockFile = ".lock"

// Lock locks the file. If it is locked, it returns [ErrLocked] immediately.
func (p Path) Lock() (Lock, error) { return p.lock(p.fs().Lock) }

// LockShared takes a shared lock on the file. If it is locked exclusively, it returns [ErrLocked]
// immediately.
func (p Path) LockShared() (Lock, error) { return p.lock(p.fs().LockShared) }

func (p Path) lock(take func(name string) (Lock, error)) (Lock, error) {
	if err := p.CheckLinks(); err != nil {
		return nil, err
	}
	return take(p.Name)
}

// Locked reports whether any process holds an exclusive lock on the file.
func (p Path) Locked() (bool, error) { return p.fs().Locked(p.Name) }

// AwaitLock waits until it can lock the file, trying again at intervals of retry. If ctx ends
// first, it returns the error of ctx.
func (p Path) AwaitLock(ctx context.Context, retry time.Duration) (Lock, error) {
	return await(ctx, retry, p.Lock)
}

// AwaitSharedLock is [Path.AwaitLock] for a shared lock.
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
