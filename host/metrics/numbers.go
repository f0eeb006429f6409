package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadNumbers returns every number of the summary at path by its name, and whether the
// run is complete. A summary that does not exist is that of a run under way: no numbers,
// not complete.
func ReadNumbers(path string) (numbers map[string]float64, completed bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("metrics: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, false, fmt.Errorf("metrics: %s: %w", path, err)
	}
	numbers = map[string]float64{}
	for name, raw := range fields {
		var n Number
		if n.UnmarshalJSON(raw) == nil {
			numbers[name] = float64(n)
		}
	}
	return numbers, string(fields["completed"]) == "true", nil
}

// longest is more than a record takes.
const longest = 16 << 10

// Last returns the last whole record of the metrics.jsonl at path, which may be growing.
// There is none in a file that does not exist or has no record.
func Last(path string) (r Record, ok bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("metrics: %w", err)
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return r, false, fmt.Errorf("metrics: %w", err)
	}
	text := make([]byte, min(end, longest))
	n, err := f.ReadAt(text, end-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) { // it may be cut at this moment
		return r, false, fmt.Errorf("metrics: %w", err)
	}
	lines := bytes.Split(text[:n], []byte("\n"))
	if len(lines) < 2 {
		return r, false, nil
	}
	line := lines[len(lines)-2] // the last is what follows the last line break
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, false, fmt.Errorf("metrics: %s: the last record: %w", path, err)
	}
	return r, true, nil
}
