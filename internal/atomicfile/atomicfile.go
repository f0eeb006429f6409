// Package atomicfile writes files that are either wholly there or not there at
// all, whenever the process or the machine stops.
//
// It is the one way in which files that are kept (checkpoints, summaries,
// figures) are written. Files that grow line by line do not belong here.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// permissions of the files written, before the process's umask.
const permissions = 0o644

// bufferSize is large enough that writing tensors is not a matter of calls.
const bufferSize = 1 << 20

// Write creates or replaces the file at path with what write puts out. The
// content goes to a temporary file in the same directory, which is synced to
// disk and renamed; then the directory is synced, so that the new name survives
// a loss of power too. When write returns an error, the file at path stays as it
// was and that error is returned, wrapped.
func Write(path string, write func(w io.Writer) error) error {
	if err := replace(path, write); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func replace(path string, write func(w io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithPermissions(permissions))
	if err != nil {
		return err
	}
	defer func() {
		if cleanupErr := f.Cleanup(); err != nil {
			err = errors.Join(err, cleanupErr)
		}
	}()
	w := bufio.NewWriterSize(f, bufferSize)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(dir)
}

// WriteBytes is Write for content that is already in memory.
func WriteBytes(path string, content []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Abandoned returns the temporary files in dir that a Write was killed over, of
// those files whose names match accepts. The names must not end in a digit, and
// no Write to any of them may be going on.
func Abandoned(dir string, match func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		// The temporary file of "name" is called ".name" and a random number.
		rest, hidden := strings.CutPrefix(entry.Name(), ".")
		name := strings.TrimRight(rest, "0123456789")
		if hidden && name != rest && match(name) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	return paths, nil
}
