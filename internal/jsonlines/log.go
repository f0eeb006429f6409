package jsonlines

import (
	"bytes"
	"errors"
	"os"

	"github.com/cage-qat/cage/internal/vfs"
)

// Log appends values to a file. Values that are appended together reach the operating system in one write, and the
// disk by the next Sync. After an error, the next values take the place of those that could not be written. A Log is
// not safe for concurrent use.
type Log[T any] struct {
	file vfs.File
	size int64 // of the lines
	torn bool  // whether a part of a line that could not be written may follow
}

// Create starts a new file at path. It is an error if there is one already.
func Create[T any](path vfs.Path) (*Log[T], error) { return open[T](path, os.O_EXCL, 0) }

// Continue goes on with the file at path after its first size bytes: what follows them is cut off. A file that does
// not exist is created.
func Continue[T any](path vfs.Path, size int64) (*Log[T], error) { return open[T](path, 0, size) }

func open[T any](path vfs.Path, flag int, size int64) (*Log[T], error) {
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_APPEND|flag, 0o644)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = path.Dir().SyncDir() // the name is to be as durable as the lines
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Log[T]{file: f, size: size}, nil
}

// Append writes each value as a line.
func (l *Log[T]) Append(values ...T) error {
	var text bytes.Buffer
	for _, v := range values {
		if err := Encode(&text, v); err != nil {
			return err
		}
	}
	if l.torn {
		if err := l.file.Truncate(l.size); err != nil {
			return err
		}
	}
	n, err := l.file.Write(text.Bytes())
	if l.torn = err != nil; !l.torn {
		l.size += int64(n)
	}
	return err
}

// Sync makes everything appended so far durable.
func (l *Log[T]) Sync() error { return l.file.Sync() }

// Close makes everything appended durable, and closes the file.
func (l *Log[T]) Close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
