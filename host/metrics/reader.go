package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/cage-qat/cage/internal/vfs"
)

// Read returns the entries of the file at path. A last line without its
// end is that of a process that was killed, or that is writing it right now, and
// is left out. Keys that are not known are ignored.
func Read[E Entry](path vfs.Path) ([]E, error) {
	data, err := path.ReadFile()
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	entries, err := parse[E](data)
	if err != nil {
		return nil, fmt.Errorf("metrics: %s: %w", path, err)
	}
	return entries, nil
}

// parse reads the content of a file. Its error names the line.
func parse[E Entry](data []byte) ([]E, error) {
	var entries []E
	for line, err := range lines[E](data) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, line.entry)
	}
	return entries, nil
}

// line is a complete line of a file.
type line[E Entry] struct {
	entry E
	end   int64 // offset of the byte after it
}

// lines yields the complete lines of a file; for one that is no entry an error, after
// which it goes on.
func lines[E Entry](data []byte) iter.Seq2[line[E], error] {
	return func(yield func(line[E], error) bool) {
		end, last := int64(0), 0
		for number := 1; ; number++ {
			text, rest, complete := bytes.Cut(data, []byte{'\n'})
			if !complete {
				return
			}
			data = rest
			end += int64(len(text)) + 1
			var r E
			err := json.Unmarshal(text, &r)
			switch {
			case err == nil && !bytes.HasPrefix(text, []byte{'{'}):
				err = fmt.Errorf("line %d: is %.60s, want a JSON object", number, text)
			case err != nil:
				err = fmt.Errorf("line %d: %w", number, err)
			case r.at() < last:
				err = fmt.Errorf("line %d: step %d follows step %d", number, r.at(), last)
			}
			if !yield(line[E]{r, end}, err) {
				return
			}
			if err == nil {
				last = r.at()
			}
		}
	}
}
