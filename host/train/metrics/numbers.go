package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
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
