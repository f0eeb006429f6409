package jsonlines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cage-qat/cage/internal/vfs"
)

// Follower reads the lines of a growing file, each once. If the file is truncated, as by
// [Continue], it is read again from the start.
type Follower struct {
	Path    vfs.Path
	Restart func() // called when everything read so far has become invalid
	// Line is called with each line, without its line terminator. text is valid only during the call.
	Line func(text []byte)

	offset int64  // of the byte after the last line
	last   []byte // the last line with its end, or the last comparedBytes of it
}

// followBytes is the number of bytes read at once. Up to comparedBytes of the last line are read
// again to detect a truncated or replaced file.
const (
	followBytes   = 1 << 20
	comparedBytes = 4 << 10
)

// Next reads the lines added since the previous call, stopping after about budget bytes, and
// reports whether there are more. An incomplete last line is left for a later call. A missing file
// counts as empty.
func (f *Follower) Next(budget int64) (more bool, err error) {
	file, err := f.Path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		f.restart()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	if f.offset > 0 {
		text := make([]byte, len(f.last))
		n, err := file.ReadAt(text, f.offset-int64(len(f.last)))
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(text[:n], f.last) {
			f.restart()
		}
	}
	if info, err := file.Stat(); err != nil || info.Size() <= f.offset {
		return false, err
	}
	for buffer := make([]byte, followBytes); ; {
		n, err := file.ReadAt(buffer, f.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("%s: %w", f.Path, err)
		}
		end := bytes.LastIndexByte(buffer[:n], '\n') + 1
		switch {
		case end > 0:
			f.pass(buffer[:end])
			if budget -= int64(end); budget <= 0 {
				return true, nil
			}
		case n < len(buffer):
			return false, nil
		case n >= maxLine:
			return false, fmt.Errorf("%s: the line at byte %d is longer than %d bytes",
				f.Path, f.offset, maxLine)
		default: // the line is longer than the buffer
			buffer = make([]byte, 4*len(buffer))
		}
	}
}

func (f *Follower) restart() {
	if f.offset > 0 {
		f.offset, f.last = 0, nil
		f.Restart()
	}
}

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
