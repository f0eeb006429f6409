// Package atomicfile writes files that are either complete or absent, whenever the
// process or the machine stops.
//
// All persistent files (checkpoints, summaries, figures) must be written with it. Files that grow
// line by line do not belong here.
package atomicfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// permissions are the permissions of new files, before the process's umask.
const permissions = 0o644

// bufferSize is large enough that system calls do not dominate the writing of tensors.
const bufferSize = 1 << 20

// Write creates or replaces the file at path with what the function write writes. The content goes
// to a temporary file in the same directory, which is synced to disk and renamed; then the
// directory is synced, so that the new name survives a loss of power, too. If write returns an
// error, Write wraps and returns it, and leaves the file at path unchanged.
func Write(path vfs.Path, write func(w io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Abort()) }()
	w := bufio.NewWriterSize(f, bufferSize)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Commit()
}

// WriteBytes is [Write] for content that is already in memory.
func WriteBytes(path vfs.Path, content []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteJSON is [Write] for a value, as indented JSON.
func WriteJSON(path vfs.Path, value any) error {
	text, err := JSON(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteBytes(path, text)
}

// JSON returns the content that [WriteJSON] writes.
func JSON(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}

// File is a file that is being written. It appears under its name, complete, at Commit.
type File struct {
	file vfs.File // nil once closed
	temp vfs.Path // "" once renamed or removed
	path vfs.Path
}

// unfinished separates a file's name from a random number in the name of its temporary file, which
// begins with a dot.
const unfinished = ".cage-unfinished-"

// Create begins a file that will appear at path. Commit or Abort must follow.
func Create(path vfs.Path) (*File, error) {
	if err := path.Replaceable(); err != nil { // fail before the work, not at its end
		return nil, err
	}
	file, temp, err := Temporary(path, permissions)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no directory %s: %w", path.Dir(), fs.ErrNotExist)
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, failed.Err // without the temporary name, which the user does not know
	}
	if err != nil {
		return nil, err
	}
	return &File{file, temp, path}, nil
}

// Temporary creates a file for the future content of path; [Abandoned] finds it if it is left
// behind. It is in the directory of path, as a rename cannot cross file systems.
func Temporary(path vfs.Path, perm fs.FileMode) (file vfs.File, temp vfs.Path, err error) {
	for {
		temp = path.Dir().Join("." + path.Base() + unfinished + fmt.Sprint(rand.Uint32()))
		file, err = temp.OpenFile(os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) {
			return file, temp, err
		}
	}
}

// Write appends to the file.
func (f *File) Write(p []byte) (int, error) { return f.file.Write(p) }

// WriteAt writes at an offset.
func (f *File) WriteAt(p []byte, offset int64) (int, error) { return f.file.WriteAt(p, offset) }

// Close syncs the file and closes it; Commit or Abort must still follow. It is for
// callers that keep many files uncommitted.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	file := f.file
	f.file = nil
	return file.Close()
}

// Commit syncs the file, renames it to its final name, and returns once that is durable.
func (f *File) Commit() error { return f.CommitAs(f.path) }

// CommitAs is [File.Commit] with another name in the same directory.
func (f *File) CommitAs(path vfs.Path) error {
	if err := f.Close(); err != nil {
		return err
	}
	if err := f.temp.Rename(path); err != nil {
		return err
	}
	f.temp.Name = ""
	return path.Dir().SyncDir()
}

// Abort removes the temporary file. After Commit it does nothing, so it can be deferred.
func (f *File) Abort() error {
	var errs []error
	if f.file != nil {
		errs = append(errs, f.file.Close())
		f.file = nil
	}
	if f.temp.Name != "" {
		errs = append(errs, f.temp.Remove())
		f.temp.Name = ""
	}
	return errors.Join(errs...)
}

// RemoveAbandoned removes the files that [Abandoned] finds.
func RemoveAbandoned(dir vfs.Path, match func(name string) bool) error {
	paths, err := Abandoned(dir, match)
	if err != nil || len(paths) == 0 {
		return err
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, path.Remove())
	}
	return errors.Join(append(errs, dir.SyncDir())...)
}

// Abandoned returns the temporary files that killed Writes have left in dir, for files whose names
// match accepts. No Write to any of these files may be in progress.
func Abandoned(dir vfs.Path, match func(name string) bool) ([]vfs.Path, error) {
	entries, err := dir.ReadDir()
	if err != nil {
		return nil, err
	}
	var paths []vfs.Path
	for _, entry := range entries {
		name, mark := strings.CutPrefix(strings.TrimRight(entry.Name(), "0123456789"), ".")
		name, ours := strings.CutSuffix(name, unfinished)
		if mark && ours && entry.Type().IsRegular() && match(name) {
			paths = append(paths, dir.Join(entry.Name()))
		}
	}
	return paths, nil
}

// Target returns the path for a file that the user has named, following a symbolic link. It creates
// its directory if necessary. The name of a pipe, a device or a directory is an error, because a
// file would replace it.
func Target(name string) (vfs.Path, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(name); err == nil {
			return vfs.Path{}, fmt.Errorf("%s is a symbolic link to a file that does not exist", name)
		}
		return vfs.At(name), vfs.At(filepath.Dir(name)).MkdirAll()
	}
	if err != nil {
		return vfs.Path{}, err
	}
	if !info.Mode().IsRegular() {
		return vfs.Path{}, fmt.Errorf("%s is not a regular file, and would be replaced by one", name)
	}
	real, err := filepath.EvalSymlinks(name)
	return vfs.At(real), err
}

// CheckOurs fails if a file exists at path for which ours returns false: cage did not write it and
// must not replace it. Callers check before their work begins, and again when they resume it, so
// ours must return true for their own output.
func CheckOurs(path vfs.Path, ours func(content io.Reader) bool) error {
	if err := path.Replaceable(); err != nil {
		return err
	}
	f, err := path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A read error is returned, so that it is not taken for a file of somebody else.
	content := &errorKeeper{r: f}
	own := ours(content)
	if err := errors.Join(content.err, f.Close()); err != nil {
		return err
	}
	if !own {
		return fmt.Errorf("%s is in the way: cage did not write it. "+
			"Move it away, or choose another directory", path)
	}
	return nil
}

// Is returns a function that reports whether content equals want.
func Is(want []byte) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(want))+1))
		return err == nil && bytes.Equal(got, want)
	}
}

// Begins returns a function that reports whether content begins with the given string.
func Begins(with string) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(with))))
		return err == nil && string(got) == with
	}
}

// errorKeeper keeps the error of its last read.
type errorKeeper struct {
	r   io.Reader
	err error
}

func (r *errorKeeper) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
