package atomicfile

// Directories that are either complete or absent.
//
// Until a directory DIR is complete, it is called DIR.incomplete and contains the empty file
// [Mark], which is written first. A directory with the mark is the remains of a killed process, and
// is replaced. One without it belongs to somebody else, and is never touched: the error describes
// what was found.

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

// Mark is the name of the file that marks an incomplete directory. It is locked while the directory
// is written.
const Mark = ".cage-incomplete"

// WriteDir creates a directory at path to. fill writes the content into a temporary directory,
// which is then renamed. If fill returns an error, nothing is left. It is an error if the path
// exists.
func WriteDir(to vfs.Path, fill func(dir vfs.Path) error) error {
	to = clean(to)
	if err := CheckDir(to); err != nil {
		return err
	}
	dir := incomplete(to)
	mark := dir.Join(Mark)
	if err := dir.MkdirAll(); err != nil {
		return err
	}
	lock, err := mark.Lock()
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	err = dir.SyncDir() // the mark must be durable before anything else is written
	if err == nil {
		err = empty(dir) // remains of a killed process
	}
	if err == nil {
		err = fill(dir)
	}
	if err != nil { // the mark is removed last, and only if everything else was removed durably
		failed := empty(dir)
		for _, do := range []func() error{dir.SyncDir, mark.Remove, dir.RemoveDir} {
			if failed == nil {
				failed = do()
			}
		}
		return errors.Join(err, failed, lock.Unlock())
	}
	// Keep the mark until the rename is durable: without it, an abandoned directory could not be
	// replaced. Keep the lock, too: another process would empty the directory while it has the old
	// name.
	if err = dir.SyncDir(); err == nil {
		err = dir.Rename(to)
	}
	if err == nil {
		err = to.Dir().SyncDir()
	}
	if err != nil {
		return errors.Join(err, lock.Unlock())
	}
	return errors.Join(to.Join(Mark).Remove(), lock.Unlock(), to.SyncDir())
}

// CheckDir returns the error that WriteDir would return if the directory cannot be created.
func CheckDir(to vfs.Path) error {
	to = clean(to)
	_, err := to.Lstat()
	if err == nil {
		return errors.Join(fmt.Errorf("%s: %w; give another --out", to, fs.ErrExist), unmark(to))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replaceable(incomplete(to))
}

// BusyDir reports whether a process is currently writing the directory.
func BusyDir(to vfs.Path) (bool, error) { return incomplete(clean(to)).Join(Mark).Locked() }

// clean removes a trailing slash, so that the temporary directory is a sibling of the final one.
func clean(to vfs.Path) vfs.Path { return vfs.On(to.FS, filepath.Clean(to.Name)) }

func incomplete(to vfs.Path) vfs.Path { return vfs.On(to.FS, to.Name+".incomplete") }

// replaceable returns an error unless the directory is missing, empty or marked.
func replaceable(dir vfs.Path) error {
	info, err := dir.Lstat()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	what := "a file"
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what = "a symbolic link"
	case info.IsDir():
		list, err := dir.ReadDir()
		if err != nil || len(list) == 0 || slices.ContainsFunc(list, isMark) {
			return err
		}
		what = "a directory without " + Mark + ", which marks unfinished output of cage"
	}
	return fmt.Errorf("%s already exists and is %s; move it away, or choose another --out", dir,
		what)
}

func isMark(e fs.DirEntry) bool { return e.Name() == Mark && e.Type().IsRegular() }

// unmark removes the mark of a complete directory whose writer was killed after the rename.
func unmark(to vfs.Path) error {
	list, err := to.ReadDir()
	if err != nil || !slices.ContainsFunc(list, isMark) {
		return nil // a file, or somebody else's
	}
	mark := to.Join(Mark)
	if busy, err := mark.Locked(); err != nil || busy {
		return err
	}
	return mark.Remove()
}

// empty removes everything in a directory except the mark.
func empty(dir vfs.Path) error {
	list, err := dir.ReadDir()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if e.Name() != Mark {
			errs = append(errs, dir.Join(e.Name()).RemoveAll())
		}
	}
	return errors.Join(errs...)
}
