package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/cage-qat/cage/internal/jsonlines"
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
		for e, err := range entries[E](path) {
			if errors.Is(err, jsonlines.ErrTorn) {
				return
			}
			if err != nil {
				err = fmt.Errorf("metrics: %w", err)
			}
			if !yield(e.Value, err) || err != nil {
				return
			}
		}
	}
}

// entries yields the lines of a file. One whose step is before that of the last entry is
// damaged, too.
func entries[E Entry](path vfs.Path) iter.Seq2[jsonlines.Entry[E], error] {
	return func(yield func(jsonlines.Entry[E], error) bool) {
		last := 0
		for e, err := range jsonlines.Read[E](path) {
			if step := e.Value.at(); err == nil && step < last {
				err = &jsonlines.Error{Path: path, Line: e.Line, Err: fmt.Errorf("step %d follows step %d", step, last)}
			} else if err == nil {
				last = step
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Last returns the last complete record of the metrics.jsonl at path, which may be
// growing. There is none if the file does not exist or has no record.
func Last(path vfs.Path) (r Record, ok bool, err error) {
	for line, err := range jsonlines.Backward(path) {
		if errors.Is(err, fs.ErrNotExist) {
			return r, false, nil
		}
		if err != nil {
			return r, false, fmt.Errorf("metrics: %w", err)
		}
		if err := plainjson.Unmarshal(line, &r); err != nil {
			return Record{}, false, fmt.Errorf("metrics: %s: the last record: %w", path, err)
		}
		return r, true, nil
	}
	return r, false, nil
}

// evaluationBytes are looked through for the newest evaluation: thousands of records without measures of weights.
const evaluationBytes = 1 << 20

// LastEvaluation returns the newest record with a validation loss, searching the end of the metrics.jsonl at path.
func LastEvaluation(path vfs.Path) (r Record, ok bool, err error) {
	searched := 0
	for line, err := range jsonlines.Backward(path) {
		if errors.Is(err, fs.ErrNotExist) {
			return r, false, nil
		}
		if err != nil {
			return r, false, fmt.Errorf("metrics: %w", err)
		}
		if searched += len(line) + 1; searched > evaluationBytes {
			break
		}
		if bytes.Contains(line, []byte(`"val_loss":`)) {
			ok = json.Unmarshal(line, &r) == nil && r.ValLoss != nil
			return r, ok, nil
		}
	}
	return r, false, nil
}
