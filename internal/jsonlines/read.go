// Package jsonlines keeps values in files that grow at their end, each value a line with a JSON object: the records of
// a run, the answers of a model. A process that is killed leaves at most its last line incomplete; [Read] says so, and
// a [Log] that goes on with the file cuts it off. A [Follower] reads a file while another process writes it.
//
// Files that are written at once, and not appended to, are internal/atomicfile's.
package jsonlines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Error is what is wrong with a line of a file.
type Error struct {
	Path vfs.Path
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: line %d: %v", e.Path, e.Line, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// ErrTorn is wrong with a last line without its end. It is from a process that was killed, or that is just writing it.
var ErrTorn = errors.New("the line has no end: writing it was interrupted")

// Entry is a line of a file.
type Entry[T any] struct {
	Value T
	Line  int   // its number, from 1
	End   int64 // offset of the byte after it
}

// Read yields the lines of the file at path, one after another, so that only one of them needs to be in memory. An
// [Error] is yielded instead of a line, and lines may follow it; after any other error nothing follows. Unknown
// keys are ignored.
func Read[T any](path vfs.Path) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		f, err := path.Open()
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		last, stopped := readLines(path, f, yield)
		err = f.Close()
		if stopped {
			return
		}
		if err == nil {
			err = last
		}
		if err != nil {
			yield(Entry[T]{}, err)
		}
	}
}

// readLines yields the lines of a file. The last error, after which nothing follows, is returned; stopped says that no
// more lines are wanted.
func readLines[T any](path vfs.Path, file io.Reader, yield func(Entry[T], error) bool) (last error, stopped bool) {
	in := bufio.NewReaderSize(file, 64<<10)
	var text []byte
	end := int64(0)
	for number := 1; ; number++ {
		var n int64
		var err error
		text, n, err = readLine(in, text[:0])
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return nil, false
		case errors.Is(err, io.EOF):
			return &Error{path, number, ErrTorn}, false
		case err != nil:
			return fmt.Errorf("%s: %w", path, err), false
		}
		end += n
		e := Entry[T]{Line: number, End: end}
		if n > maxLine {
			err = fmt.Errorf("is longer than %d bytes", maxLine)
		} else {
			err = decode(text[:n-1], &e.Value)
		}
		if err != nil {
			err = &Error{path, number, err}
		}
		if !yield(e, err) {
			return nil, true
		}
	}
}

// readLine reads n bytes, up to the end of a line, and appends them to text, unless they are too many.
func readLine(in *bufio.Reader, text []byte) (line []byte, n int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if n += int64(len(part)); n <= maxLine {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, n, err
		}
	}
}

func decode(text []byte, to any) error {
	if err := plainjson.Unmarshal(text, to); err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte{'{'}) {
		return fmt.Errorf("is %.60s, want a JSON object", text)
	}
	return nil
}

// Encode writes a value as a line.
func Encode(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Backward yields the complete lines of the file at path, which may be growing, from the last to the first. They have
// no line ends, and are valid only until the next one. An error comes last.
func Backward(path vfs.Path) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := path.Open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		if err := backward(f, yield); err != nil {
			yield(nil, fmt.Errorf("%s: %w", path, err))
		}
	}
}

func backward(f vfs.File, yield func([]byte, error) bool) error {
	from, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var text []byte   // of the file, from there on
	complete := false // whether text ends with the end of a line
	for {
		if end := bytes.LastIndexByte(text, '\n'); !complete && end >= 0 {
			text, complete = text[:end+1], true
		}
		for complete && len(text) > 0 {
			start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
			if start == 0 && from > 0 {
				break // the line begins before the text
			}
			if !yield(text[start:len(text)-1], nil) {
				return nil
			}
			text = text[:start]
		}
		if from == 0 {
			return nil
		}
		if len(text) >= maxLine {
			return fmt.Errorf("a line before byte %d is longer than %d bytes", from+int64(len(text)), maxLine)
		}
		n := min(from, max(16<<10, int64(len(text)))) // most files need one read
		before := make([]byte, n)
		from -= n
		if read, err := f.ReadAt(before, from); err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			before, text, complete = before[:read], nil, false // the file was cut at this moment
		}
		text = slices.Concat(before, text)
	}
}

// maxLine bounds a line in bytes, and so the memory that reading takes. The longest are records with
// measures of very many weights.
const maxLine = 64 << 20

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
