package metrics

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Read returns the entries of the file at path, as [Each] yields them.
func Read[E Entry](path vfs.Path) ([]E, error) {
	var list []E
	for e, err := range Each[E](path) {
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// Each yields the entries of the file at path one after another, so that only one of them
// needs to be in memory; an error comes last. A last line without its end is from a
// process that was killed, or that is just writing it, and is left out. Unknown keys are
// ignored.
func Each[E Entry](path vfs.Path) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		f, err := path.Open()
		if err != nil {
			yield(none, fmt.Errorf("metrics: %w", err))
			return
		}
		for line, err := range lines[E](f) {
			if err = cmp.Or(err, line.damage); err != nil {
				yield(none, fmt.Errorf("metrics: %s: %w", path, errors.Join(err, f.Close())))
				return
			}
			if !yield(line.entry, nil) {
				_ = f.Close() // nobody is left to be told
				return
			}
		}
		if err := f.Close(); err != nil {
			yield(none, fmt.Errorf("metrics: %w", err))
		}
	}
}

// line is a complete line of a file.
type line[E Entry] struct {
	entry  E
	end    int64 // offset of the byte after it
	damage error // why it is no entry; it names the line
}

// lines yields the complete lines of a file. After an error, of reading, nothing follows.
func lines[E Entry](file io.Reader) iter.Seq2[line[E], error] {
	return func(yield func(line[E], error) bool) {
		from, end, last := lineReader{from: bufio.NewReaderSize(file, readBytes)}, int64(0), 0
		for number := 1; ; number++ {
			text, err := from.next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(line[E]{}, err)
				}
				return
			}
			end += int64(len(text))
			l := parse[E](text[:len(text)-1], last)
			l.end = end
			if l.damage != nil {
				l.damage = fmt.Errorf("line %d: %w", number, l.damage)
			} else {
				last = l.entry.at()
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// parse reads a line that follows an entry of step last.
func parse[E Entry](text []byte, last int) (l line[E]) {
	l.damage = plainjson.Unmarshal(text, &l.entry)
	switch {
	case l.damage != nil:
	case !bytes.HasPrefix(text, []byte{'{'}):
		l.damage = fmt.Errorf("is %.60s, want a JSON object", text)
	case l.entry.at() < last:
		l.damage = fmt.Errorf("step %d follows step %d", l.entry.at(), last)
	}
	return l
}

// readBytes are read at once.
const readBytes = 64 << 10

// lineReader reads lines of any length.
type lineReader struct {
	from *bufio.Reader
	text []byte
}

// next returns a line with its end, valid until the next call; io.EOF where none is complete.
func (r *lineReader) next() ([]byte, error) {
	r.text = r.text[:0]
	for {
		part, err := r.from.ReadSlice('\n')
		r.text = append(r.text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return r.text, err
		}
	}
}
