package metrics

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Entry is one line of a file, written after a step. A [Record] is a line of metrics.jsonl,
// a [Point] one of trajectory.jsonl, and a [Sample] one of samples.jsonl.
type Entry interface {
	Record | Point | Sample
	at() (step int)
}

// Writer appends entries to a file, in the order of their steps, as a [jsonlines.Log] does.
type Writer[E Entry] struct {
	log    *jsonlines.Log[E]
	last   int   // step of the last entry
	damage error // of the lines that were truncated
}

// Damage returns the error of the first complete line that was truncated because it was not an
// entry; nil if there was none.
func (w *Writer[E]) Damage() error { return w.damage }

// Create creates metrics.jsonl at path, which must not exist.
func Create(path vfs.Path) (*Writer[Record], error) {
	log, err := jsonlines.Create[Record](path)
	if err != nil {
		return nil, err
	}
	return &Writer[Record]{log: log}, nil
}

// Resume opens the file at path for a run that continues after the given step, or creates it.
// Entries of later steps, which the resumed run will write again, are truncated, and so is damage
// after the other entries.
func Resume[E Entry](path vfs.Path, step int) (*Writer[E], error) {
	w := &Writer[E]{}
	size, err := w.find(path, step)
	if err != nil {
		return nil, err
	}
	if w.log, err = jsonlines.Continue[E](path, size); err != nil {
		return nil, err
	}
	return w, nil
}

// find returns the size of the file up to the end of its last entry of at most the given
// step. Damaged lines may follow it. If an entry to keep follows a damaged line, or no entry
// would be kept although step > 0, the damage is an error.
func (w *Writer[E]) find(path vfs.Path, step int) (size int64, err error) {
	for e, err := range entries[E](path) {
		switch _, damaged := errors.AsType[*jsonlines.Error](err); {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, jsonlines.ErrTorn):
			continue
		case damaged:
			w.damage = cmp.Or(w.damage, err)
			continue
		case err != nil:
			return 0, err
		}
		if e.Value.at() > step {
			break
		}
		if w.damage != nil {
			return 0, w.damage
		}
		size, w.last = e.End, e.Value.at()
	}
	if w.damage != nil && size == 0 && step > 0 {
		return 0, w.damage
	}
	return size, nil
}

// Write appends an entry. Steps must not go backwards; several records may share
// one (a training record and an evaluation).
func (w *Writer[E]) Write(e E) error {
	if e.at() < w.last {
		return fmt.Errorf("record of step %d after one of step %d", e.at(), w.last)
	}
	if err := w.log.Append(e); err != nil {
		return fmt.Errorf("step %d: %w", e.at(), err)
	}
	w.last = e.at()
	return nil
}

// Sync makes everything written so far durable. It must be called before a checkpoint of
// the same step is saved.
func (w *Writer[E]) Sync() error { return w.log.Sync() }

// Close makes everything written durable, and closes the file.
func (w *Writer[E]) Close() error { return w.log.Close() }

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

// Each yields the entries of the file at path, and ends after an error. An incomplete last line,
// which may still be being written, is left out. Unknown keys are ignored.
func Each[E Entry](path vfs.Path) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for e, err := range entries[E](path) {
			if errors.Is(err, jsonlines.ErrTorn) || !yield(e.Value, err) || err != nil {
				return
			}
		}
	}
}

// entries yields the lines of a file. An entry whose step is before that of the preceding
// entry counts as damaged.
func entries[E Entry](path vfs.Path) iter.Seq2[jsonlines.Entry[E], error] {
	return func(yield func(jsonlines.Entry[E], error) bool) {
		last := 0
		for e, err := range jsonlines.Read[E](path) {
			if step := e.Value.at(); err == nil && step < last {
				err = fmt.Errorf("step %d follows step %d", step, last)
				err = &jsonlines.Error{Path: path, Line: e.Line, Err: err}
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
	for size := int64(64 << 10); ; size *= 8 {
		lines, whole, err := jsonlines.Tail(path, size)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return r, false, nil
		case err != nil:
			return r, false, err
		case len(lines) == 0 && !whole:
			continue // its last line is longer
		case len(lines) == 0:
			return r, false, nil
		}
		if err := plainjson.Unmarshal(lines[len(lines)-1], &r); err != nil {
			return Record{}, false, fmt.Errorf("%s: the last record: %w", path, err)
		}
		return r, true, nil
	}
}

// evaluationBytes is how far from the end of the file the newest evaluation is searched for, in
// bytes: thousands of records of the usual size.
const evaluationBytes = 1 << 20

// LastEvaluation returns the newest record with a validation loss in the last MiB of the
// metrics.jsonl at path.
func LastEvaluation(path vfs.Path) (r Record, ok bool, err error) {
	lines, _, err := jsonlines.Tail(path, evaluationBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	for _, line := range slices.Backward(lines) {
		if bytes.Contains(line, []byte(`"val_loss":`)) {
			ok = json.Unmarshal(line, &r) == nil && r.ValLoss != nil
			return r, ok, nil
		}
	}
	return r, false, err
}
