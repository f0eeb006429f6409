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

// Entry is a line that is written after a step: a [Record] in metrics.jsonl, a [Point] in
// trajectory.jsonl or a [Sample] in samples.jsonl.
type Entry interface {
	Record | Point | Sample
	at() (step int)
}

// Writer appends entries to a [jsonlines.Log] in the order of their steps. It must be synced before
// a checkpoint of the same step is saved.
type Writer[E Entry] struct {
	*jsonlines.Log[E]
	last   int   // step of the last entry
	damage error // of the lines that were truncated
}

// Damage returns an error about the first complete but invalid line that [Resume] has truncated, or
// nil if there was none.
func (w *Writer[E]) Damage() error { return w.damage }

// Resume opens or creates the file at path for a run that has done the given number of steps. It
// truncates the entries of later steps, which the run will write again, and any damaged lines at
// the end.
func Resume[E Entry](path vfs.Path, step int) (*Writer[E], error) {
	w := &Writer[E]{}
	size, err := w.find(path, step)
	if err != nil {
		return nil, err
	}
	if w.Log, err = jsonlines.Continue[E](path, size); err != nil {
		return nil, err
	}
	return w, nil
}

// find returns the size of the file up to the last entry whose step is not after the given one.
// Damaged lines after it are tolerated. They are an error if an entry to keep follows, or if no
// entry would be kept although step > 0.
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

// Write appends an entry. Steps must not decrease, but entries may have the same step, such as a
// training record and an evaluation.
func (w *Writer[E]) Write(e E) error {
	if e.at() < w.last {
		return fmt.Errorf("cannot write an entry of step %d after step %d", e.at(), w.last)
	}
	if err := w.Append(e); err != nil {
		return fmt.Errorf("step %d: %w", e.at(), err)
	}
	w.last = e.at()
	return nil
}

// Read returns the entries that [Each] yields.
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

// Each yields the entries of the file at path and stops after an error. It leaves out an incomplete
// last line, which another process may be writing, and ignores unknown keys.
func Each[E Entry](path vfs.Path) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for e, err := range entries[E](path) {
			if errors.Is(err, jsonlines.ErrTorn) || !yield(e.Value, err) || err != nil {
				return
			}
		}
	}
}

// entries yields the lines of a file. It reports an entry as damaged if its step is before that of
// the preceding entry.
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

// tailBytes is the number of bytes at the end of the file that [Last] reads first: thousands of
// records of the usual size.
const tailBytes = 1 << 20

// Last returns the last complete record of the metrics.jsonl at path, to which a run may be
// writing. Its validation loss is the newest one in the last MiB, or more if the record is longer.
// ok is false if the file does not exist or has no record.
func Last(path vfs.Path) (r Record, ok bool, err error) {
	for size := int64(tailBytes); ; size *= 8 {
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
		for _, line := range slices.Backward(lines) {
			if bytes.Contains(line, []byte(`"val_loss":`)) {
				var evaluation Record
				if json.Unmarshal(line, &evaluation) == nil && evaluation.ValLoss != nil {
					r.ValLoss, r.ValPPL = evaluation.ValLoss, evaluation.ValPPL
				}
				break
			}
		}
		return r, true, nil
	}
}
