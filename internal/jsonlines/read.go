// Package jsonlines reads and appends to JSON Lines files, such as the records of a run. If a
// writer is killed, at most the last line is incomplete: [Read] reports such a line, and [Continue]
// removes it. A [Follower] reads a file while another process writes it.
//
// Files that are written as a whole belong to internal/atomicfile.
package jsonlines

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Error describes a problem with one line of a file.
type Error struct {
	Path vfs.Path
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: line %d: %v", e.Path, e.Line, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// ErrTorn reports that the last line is incomplete, because its writer was killed or is still
// writing it.
var ErrTorn = errors.New("the line is incomplete: writing it was interrupted")

// Entry is a parsed line of a file.
type Entry[T any] struct {
	Value T
	Line  int   // line number, from 1
	End   int64 // offset of the byte after it
}

// Read yields the parsed lines of the file at path, keeping only one in memory. For an invalid line
// it yields an [Error] and continues. After any other error it stops. Unknown keys are ignored.
func Read[T any](path vfs.Path) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		f, err := path.Open()
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		stopped := false
		last := readLines(path, f, func(e Entry[T], err error) bool {
			stopped = !yield(e, err)
			return !stopped
		})
		if err := cmp.Or(f.Close(), last); err != nil && !stopped {
			yield(Entry[T]{}, err)
		}
	}
}

// readLines calls yield for each line until yield returns false. It returns an error if reading
// cannot continue.
func readLines[T any](path vfs.Path, file io.Reader, yield func(Entry[T], error) bool) error {
	in := bufio.NewReaderSize(file, 64<<10)
	var text []byte
	end := int64(0)
	for number := 1; ; number++ {
		var n int64
		var err error
		text, n, err = readLine(in, text[:0])
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return nil
		case errors.Is(err, io.EOF):
			return &Error{path, number, ErrTorn}
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		end += n
		e := Entry[T]{Line: number, End: end}
		if n > maxLine {
			err = fmt.Errorf("is longer than %d bytes", maxLine)
		} else {
			line := text[:n-1]
			err = plainjson.Unmarshal(line, &e.Value)
			if err == nil && !bytes.HasPrefix(bytes.TrimSpace(line), []byte{'{'}) {
				err = fmt.Errorf("is %.60s, want a JSON object", line)
			}
		}
		if err != nil {
			err = &Error{path, number, err}
		}
		if !yield(e, err) {
			return nil
		}
	}
}

// readLine reads one line of n bytes, including its terminator, and appends it to text. It appends
// at most maxLine bytes.
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

// Encode writes a value as one line of JSON.
func Encode(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Tail returns the complete lines within the last size bytes of the file at path, without their
// terminators. The file may be growing. whole reports whether these bytes are the whole file.
func Tail(path vfs.Path, size int64) (lines [][]byte, whole bool, err error) {
	f, err := path.Open()
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	from := max(0, end-min(size, maxLine))
	text := make([]byte, end-from)
	n, err := f.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) { // at io.EOF the file has just been truncated
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	lines = bytes.Split(text[:n], []byte{'\n'})
	lines = lines[:len(lines)-1] // an incomplete line, or nothing
	if from > 0 && len(lines) > 0 {
		lines = lines[1:] // its beginning is missing
	}
	if len(lines) == 0 && from > 0 && size >= maxLine {
		return nil, false, fmt.Errorf("%s: its last line is longer than %d bytes", path, maxLine)
	}
	return lines, from == 0, nil
}

// maxLine limits the length of a line in bytes, and thereby the memory for reading it. The longest
// lines are records with measurements of thousands of weights.
const maxLine = 64 << 20

// Log appends values to a file. The values of one Append are written with a single system call, and
// become durable at the next Sync. After an error, the next Append overwrites what was not fully
// written. A Log is not safe for concurrent use.
type Log[T any] struct {
	file vfs.File
	size int64 // of the lines
	torn bool  // whether a partly written line may follow
}

// Continue truncates the file at path to size bytes, for appending. It creates a missing file.
func Continue[T any](path vfs.Path, size int64) (*Log[T], error) {
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = path.Dir().SyncDir() // make the name as durable as the lines
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

// Close makes everything appended so far durable, and closes the file.
func (l *Log[T]) Close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
