// Package atomicfile writes files that are either complete or absent, even after a crash.
//
// All persistent files (checkpoints, summaries, figures) must be written with this package, except
// those that grow line by line.
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

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// permissions are the permissions of new files, before the process's umask. A file that replaces
// another one gets no more than the permissions of that one.
const permissions = 0o644

// bufferSize is chosen so that writing tensors takes few system calls.
const bufferSize = 1 << 20

// Write creates or replaces the file at path with the content that the callback writes. The content
// goes to a temporary file in the same directory, which is synced to disk and renamed; then the
// directory is synced, so that the new name survives a power failure. If the callback returns an
// error, Write wraps and returns it, and leaves the existing file unchanged.
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

// WriteJSON is [Write] for a value, encoded as indented JSON.
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

// File is a file that is being written. It appears under its final name when Commit is called.
type File struct {
	file vfs.File // nil once closed
	temp vfs.Path // "" once renamed or removed
	path vfs.Path
}

// unfinished is the infix of a temporary file's name, which is a dot, the final name, this infix
// and a random number.
const unfinished = ".cage-unfinished-"

// Create starts writing a file that will appear at path. The caller must call Commit or Abort.
func Create(path vfs.Path) (*File, error) {
	if err := path.Replaceable(); err != nil { // fail before the work, not at its end
		return nil, err
	}
	file, temp, err := Temporary(path, path.Permissions(permissions))
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

// Temporary creates a temporary file for the future content of path, in the same directory, because
// a rename cannot cross file systems. If it is left behind, [Abandoned] finds it.
func Temporary(path vfs.Path, perm fs.FileMode) (file vfs.File, temp vfs.Path, err error) {
	for {
		temp = path.Dir().Join("." + path.Base() + unfinished + fmt.Sprint(rand.Uint32()))
		file, err = temp.OpenFile(os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) {
			return file, temp, err
		}
	}
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) { return f.file.Write(p) }

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(p []byte, offset int64) (int, error) { return f.file.WriteAt(p, offset) }

// Close syncs and closes the file. The caller must still call Commit or Abort. It is for callers
// that keep many uncommitted files.
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

// Commit syncs the file and renames it to its final name. It returns when the new name is durable.
func (f *File) Commit() error { return f.CommitAs(f.path) }

// CommitAs is [File.Commit] under another name in the same directory.
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

// Abort removes the temporary file. It does nothing after Commit, so that it can be deferred.
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
	errs := lists.Map(paths, func(path vfs.Path) error { return path.Remove() })
	return errors.Join(append(errs, dir.SyncDir())...)
}

// Abandoned returns the temporary files that killed processes have left in dir, for the final names
// accepted by match. No write to any of these files may be in progress.
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

// Target returns the path of an output file named by the user. It follows a symbolic link, and
// creates the file's directory if necessary. It is an error if a pipe, device or directory has that
// name, because the output would replace it.
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
		return vfs.Path{}, fmt.Errorf("%s is not a regular file, so cage must not replace it", name)
	}
	real, err := filepath.EvalSymlinks(name)
	return vfs.At(real), err
}

// CheckOurs returns an error if a file exists at path for which ours returns false, because cage
// must not replace files that it did not write. Callers check before they start and again when they
// resume, so ours must accept their own output.
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
	// Return a read error, so that an unreadable file is not taken for somebody else's.
	content := &errorKeeper{r: f}
	own := ours(content)
	if err := errors.Join(content.err, f.Close()); err != nil {
		return err
	}
	if !own {
		return fmt.Errorf("%s already exists and was not written by cage; "+
			"move it away, or choose another directory", path)
	}
	return nil
}

// Is returns a function that reports whether a file's content equals want.
func Is(want []byte) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(want))+1))
		return err == nil && bytes.Equal(got, want)
	}
}

// Begins returns a function that reports whether a file's content begins with the given prefix.
func Begins(with string) func(content io.Reader) bool {
	return func(content io.Reader) bool {
		got, err := io.ReadAll(io.LimitReader(content, int64(len(with))))
		return err == nil && string(got) == with
	}
}

// errorKeeper keeps the last read error other than io.EOF.
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
