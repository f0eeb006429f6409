package jsonlines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cage-qat/cage/internal/vfs"
)

// Follower reads each line of a growing file once. If the file is truncated, as by [Continue], it
// is read again from the start.
type Follower struct {
	Path    vfs.Path
	Restart func()            // called when everything read so far has become invalid
	Line    func(text []byte) // called with the next line, without its line end; text is valid only until the next call

	offset int64  // of the byte after the last line
	last   []byte // the last line with its end, up to the length that is compared

	searched int64       // bytes after offset known to have no line end
	info     fs.FileInfo // of the file with these bytes
}

// followBytes is the number of bytes read at once, comparedBytes the part of the last line that is
// read again to detect changes.
const (
	followBytes   = 1 << 20
	comparedBytes = 4 << 10
)

// Next reads lines added since the previous call, until about budget bytes have been read, and
// reports whether there are more. An incomplete last line is left for later. A missing file counts
// as empty.
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
	if f.offset > 0 { // the last line that was read must still be where it was
		text := make([]byte, len(f.last))
		n, err := file.ReadAt(text, f.offset-int64(len(f.last)))
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(text[:n], f.last) {
			f.restart()
		}
	}
	more, err = f.read(file, budget)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.Path, err)
	}
	return more, nil
}

// Offset returns how many bytes have been read.
func (f *Follower) Offset() int64 { return f.offset }

func (f *Follower) restart() {
	if f.offset > 0 {
		f.offset, f.last, f.searched = 0, nil, 0
		f.Restart()
	}
}

func (f *Follower) read(file vfs.File, budget int64) (more bool, err error) {
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	// The bytes that were searched may be others now: the file is another one, or was cut.
	end := f.offset + f.searched
	if f.searched > 0 && (!vfs.SameFile(f.info, info) || info.Size() < end ||
		info.Size() == end && !info.ModTime().Equal(f.info.ModTime())) {
		f.searched = 0
	}
	f.info = info
	if f.searched >= maxLine {
		return false, f.tooLong()
	}
	buffer := make([]byte, followBytes)
	for read := int64(0); ; {
		n, err := file.ReadAt(buffer, f.offset+f.searched)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		whole := bytes.LastIndexByte(buffer[:n], '\n') + 1
		if whole == 0 {
			f.searched += int64(n)
			if f.searched >= maxLine {
				return false, f.tooLong()
			}
			if n < len(buffer) {
				return false, nil
			}
			continue
		}
		text := buffer[:whole]
		if f.searched > 0 {
			text = make([]byte, f.searched+int64(whole))
			if n, err := file.ReadAt(text, f.offset); n < len(text) {
				if errors.Is(err, io.EOF) { // it was truncated just now
					err = nil
				}
				return false, err
			}
		}
		f.pass(text)
		if read += int64(len(text)); read >= budget {
			return true, nil
		}
	}
}

func (f *Follower) tooLong() error {
	return fmt.Errorf("a line at byte %d is longer than %d bytes", f.offset, maxLine)
}

func (f *Follower) pass(text []byte) {
	f.offset, f.searched = f.offset+int64(len(text)), 0
	start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	f.last = bytes.Clone(text[max(start, len(text)-comparedBytes):])
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		f.Line(line)
		text = rest
	}
}
