package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// ReadNumbers returns every number in the summary at path by its name, and whether the
// run is complete. If the file does not exist, the run is still in progress: there are no
// numbers, and it is not complete.
func ReadNumbers(path vfs.Path) (numbers map[string]float64, completed bool, err error) {
	text, err := path.ReadSmallFile(longestSummary)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("metrics: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := plainjson.Unmarshal(text, &fields); err != nil {
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

// NumberNames lists the JSON names of the numeric fields of a struct such as [Record] or
// [Summary], including those of embedded structs.
func NumberNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		kind := f.Type.Kind()
		if kind == reflect.Pointer {
			kind = f.Type.Elem().Kind()
		}
		switch kind {
		case reflect.Int, reflect.Int64, reflect.Float64:
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// longestLine bounds records, also those with measures of very many weights.
const longestLine = 64 << 20 // bytes

// tailBytes hold the last record of most runs; with measures of many weights it is longer.
const tailBytes = 16 << 10

// Last returns the last complete record of the metrics.jsonl at path, which may be
// growing. There is none if the file does not exist or has no record.
func Last(path vfs.Path) (r Record, ok bool, err error) {
	f, err := path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("metrics: %w", err)
	}
	defer f.Close()
	line, err := lastLine(f)
	if err != nil {
		return r, false, fmt.Errorf("metrics: %s: %w", path, err)
	}
	if line == nil {
		return r, false, nil
	}
	if err := plainjson.Unmarshal(line, &r); err != nil {
		return Record{}, false, fmt.Errorf("metrics: %s: the last record: %w", path, err)
	}
	return r, true, nil
}

// evaluationBytes are looked through for the newest evaluation: thousands of records without measures of weights.
const evaluationBytes = 1 << 20

// LastEvaluation returns the newest record with a validation loss, searching the end of the metrics.jsonl at path.
func LastEvaluation(path vfs.Path) (r Record, ok bool, err error) {
	f, err := path.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("metrics: %w", err)
	}
	defer f.Close()
	text, err := tail(f, evaluationBytes)
	if err != nil {
		return r, false, fmt.Errorf("metrics: %s: %w", path, err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	at := bytes.LastIndex(text, []byte(`"val_loss":`))
	if at < 0 {
		return r, false, nil
	}
	start, length := bytes.LastIndexByte(text[:at], '\n')+1, bytes.IndexByte(text[at:], '\n')
	// Of a line that begins before these bytes a part is no record.
	ok = json.Unmarshal(text[start:at+length], &r) == nil && r.ValLoss != nil
	return r, ok, nil
}

// tail reads up to so many bytes at the end of a file.
func tail(f vfs.File, most int64) ([]byte, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(end, most))
	n, err := f.ReadAt(text, end-int64(len(text)))
	if errors.Is(err, io.EOF) { // it may be cut at this moment
		err = nil
	}
	return text[:n], err
}

// lastLine returns the last line that has an end, nil when there is none.
func lastLine(f vfs.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stop, err := lineEndBefore(f, info.Size())
	if err != nil || stop < 0 {
		return nil, err
	}
	start, err := lineEndBefore(f, stop)
	if err != nil {
		return nil, err
	}
	text := make([]byte, stop-start-1)
	n, err := f.ReadAt(text, start+1)
	if errors.Is(err, io.EOF) { // it may be cut at this moment
		err = nil
	}
	return text[:n], err
}

// lineEndBefore is the place of the last line end before a place, -1 when there is none.
func lineEndBefore(f vfs.File, end int64) (int64, error) {
	buffer := make([]byte, tailBytes)
	for at := end; at > 0; {
		from := max(0, at-int64(len(buffer)))
		n, err := f.ReadAt(buffer[:at-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buffer[:n], '\n'); i >= 0 {
			return from + int64(i), nil
		}
		if at = from; end-at >= longestLine {
			return 0, fmt.Errorf("the last line is longer than %d bytes", longestLine)
		}
	}
	return -1, nil
}
