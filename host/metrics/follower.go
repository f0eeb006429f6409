package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cage-qat/cage/internal/vfs"
)

// Follower reads the lines of a growing file, each once. A run that resumes from a
// checkpoint first cuts its records back; then everything is read anew.
type Follower struct {
	Path    vfs.Path
	Restart func()            // called when everything read so far has become invalid
	Line    func(text []byte) // called with the next line, without its line end; text is valid only until the next call

	offset int64  // of the byte after the last line
	last   []byte // the last line with its end, as far as it is compared
}

// followBytes are read at once, comparedBytes of the last line looked at again.
const (
	followBytes   = 1 << 20
	comparedBytes = 4 << 10
	longestLine   = 64 << 20 // of records with measures of very many weights
)

// Next reads lines added since the previous call, until about budget bytes have been
// read, and reports whether there are more. A line without its end is left for later. A
// file that does not exist counts as empty.
func (f *Follower) Next(budget int64) (more bool, err error) {
	file, err := f.Path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		f.again()
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("metrics: %w", err)
	}
	defer file.Close()
	known, err := f.continues(file)
	if err != nil {
		return false, fmt.Errorf("metrics: %w", err)
	}
	if !known {
		f.again()
	}
	more, err = f.read(file, budget)
	if err != nil {
		return false, fmt.Errorf("metrics: %s: %w", f.Path, err)
	}
	return more, nil
}

// Offset returns how many bytes have been read.
func (f *Follower) Offset() int64 { return f.offset }

func (f *Follower) again() {
	if f.offset > 0 {
		f.offset, f.last = 0, nil
		f.Restart()
	}
}

// continues tells whether the last line that was read is still where it was.
func (f *Follower) continues(file vfs.File) (bool, error) {
	if f.offset == 0 {
		return true, nil
	}
	text := make([]byte, len(f.last))
	n, err := file.ReadAt(text, f.offset-int64(len(f.last)))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(text[:n], f.last), nil
}

func (f *Follower) read(file vfs.File, budget int64) (more bool, err error) {
	buffer := make([]byte, followBytes)
	for read := int64(0); ; {
		n, err := file.ReadAt(buffer, f.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		whole := bytes.LastIndexByte(buffer[:n], '\n') + 1
		switch {
		case whole == 0 && n < len(buffer):
			return false, nil
		case whole == 0 && n >= longestLine:
			return false, fmt.Errorf("a line at byte %d is longer than %d bytes", f.offset, longestLine)
		case whole == 0:
			buffer = make([]byte, 4*len(buffer))
			continue
		}
		f.pass(buffer[:whole])
		if read += int64(whole); read >= budget {
			return true, nil
		}
	}
}

// pass passes on whole lines.
func (f *Follower) pass(text []byte) {
	f.offset += int64(len(text))
	start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	f.last = bytes.Clone(text[max(start, len(text)-comparedBytes):])
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		f.Line(line)
		text = rest
	}
}
