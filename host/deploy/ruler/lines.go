package ruler

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Answer is a model's answer to a sample, with the fields that RULER stores.
type Answer struct {
	Index int `json:"index"`
	// Pred is the answer without its prefix.
	Pred string `json:"pred"`
	// Input is everything that the model read: input and answer prefix of the sample.
	Input   string   `json:"input"`
	Outputs []string `json:"outputs"`
	// Others and Truncation have no meaning here; RULER's evaluation expects them.
	Others     struct{} `json:"others"`
	Truncation int      `json:"truncation"`
	Length     int      `json:"length"`
}

// line is a line of a file.
type line[T any] struct {
	value T
	end   int64 // place in the file behind it
}

// damage is the error of a line that is no JSON of the kind, or has no end.
type damage struct {
	line int
	err  error
}

func (d *damage) Error() string { return fmt.Sprintf("line %d: %v", d.line, d.err) }
func (d *damage) Unwrap() error { return d.err }

// errTorn is the error of a last line without an end.
var errTorn = errors.New("the line has no end: writing it was interrupted")

// lines reads the lines of a file of JSON objects.
func lines[T any](r io.Reader) iter.Seq2[line[T], error] {
	return func(yield func(line[T], error) bool) {
		in := bufio.NewReaderSize(r, 1<<16)
		end := int64(0)
		for number := 1; ; number++ {
			text, err := in.ReadBytes('\n')
			if err == io.EOF && len(text) == 0 {
				return
			}
			l := line[T]{end: end + int64(len(text))}
			switch {
			case err == io.EOF:
				err = &damage{number, errTorn}
			case err == nil:
				if err = plainjson.Unmarshal(text, &l.value); err != nil {
					err = &damage{number, err}
				}
			}
			if !yield(l, err) || err != nil {
				return
			}
			end = l.end
		}
	}
}

// read reads the values of a file of lines. A last line that is torn is an error.
func read[T any](path vfs.Path) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		f, err := path.Open()
		if err != nil {
			yield(none, err)
			return
		}
		for l, err := range lines[T](f) {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if !yield(l.value, err) || err != nil {
				_ = f.Close()
				return
			}
		}
		if err := f.Close(); err != nil {
			yield(none, err)
		}
	}
}
