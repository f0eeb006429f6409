package jsonlines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/cage-qat/cage/internal/vfs"
)

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
		if len(text) >= longest {
			return fmt.Errorf("a line before byte %d is longer than %d bytes", from+int64(len(text)), longest)
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
