package metrics

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/cage-qat/cage/internal/vfs"
)

// Entry is one line of a file: what is known after a step. A [Record] is a line of
// metrics.jsonl, a [Point] one of trajectory.jsonl, and a [Sample] one of samples.jsonl.
type Entry interface {
	Record | Point | Sample
	at() (step int)
}

// Writer appends entries to a file, in the order of their steps. Each is one line, which
// reaches the operating system in one write, so that a killed process leaves at most its
// last line incomplete. After an error the next entry takes the place of the one that
// could not be written. A Writer is not safe for concurrent use.
type Writer[E Entry] struct {
	f      vfs.File
	last   int   // step of the last line
	size   int64 // of the lines
	torn   bool  // whether a part of a line that could not be written may follow
	damage error // of the lines that were cut off
}

// Damage returns what was wrong with the first complete line that was cut off because it
// was not an entry, as after a loss of power; nil if there was no such line.
func (w *Writer[E]) Damage() error { return w.damage }

// Create starts a new metrics.jsonl at path. It is an error if there is one already: the
// record of a run is never overwritten.
func Create(path vfs.Path) (*Writer[Record], error) {
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if err := path.Dir().SyncDir(); err != nil { // the name is to be as durable as the records
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), f.Close())
	}
	return &Writer[Record]{f: f}, nil
}

// Resume opens the file at path for a run that continues after the given step. Entries of
// later steps, which the resumed run will write again, are cut off, and so are an
// incomplete last line and other damage after the entries that are kept. A file that does
// not exist is created: the run had not logged anything yet.
func Resume[E Entry](path vfs.Path, step int) (*Writer[E], error) {
	f, err := path.OpenFile(os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	w := &Writer[E]{f: f}
	err = w.cut(step)
	if err == nil {
		err = path.Dir().SyncDir()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %s: %w", path, err), f.Close())
	}
	return w, nil
}

// cut ends the file after its last entry of at most the given step. Lines that are no
// entries are cut off with the rest. Where an entry that is to stay follows them, or
// nothing would stay of a run that has done steps, the damage is an error instead.
func (w *Writer[E]) cut(step int) error {
	var size int64
	for line, err := range lines[E](w.f) {
		if err != nil {
			return err
		}
		if line.damage != nil {
			w.damage = cmp.Or(w.damage, line.damage)
			continue
		}
		if line.entry.at() > step {
			break
		}
		if w.damage != nil {
			return w.damage
		}
		size, w.last = line.end, line.entry.at()
	}
	if w.damage != nil && size == 0 && step > 0 {
		return w.damage
	}
	w.size = size
	if err := w.f.Truncate(size); err != nil {
		return err
	}
	return w.f.Sync()
}

// Write appends an entry. Steps must not go backwards; several records may share
// one (a training record and an evaluation).
func (w *Writer[E]) Write(e E) error {
	if e.at() < w.last {
		return fmt.Errorf("metrics: record of step %d after one of step %d", e.at(), w.last)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("metrics: step %d: %w", e.at(), err)
	}
	if err := w.put(append(text, '\n')); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	w.last = e.at()
	return nil
}

// put appends a line, in the place of one that could not be written before.
func (w *Writer[E]) put(line []byte) error {
	if w.torn {
		if err := w.f.Truncate(w.size); err != nil {
			return err
		}
	}
	_, err := w.f.Write(line)
	w.torn = err != nil
	if err == nil {
		w.size += int64(len(line))
	}
	return err
}

// Sync makes everything written so far durable. It must be called before a checkpoint of
// the same step is saved.
func (w *Writer[E]) Sync() error {
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close makes everything written durable, and closes the file.
func (w *Writer[E]) Close() error {
	if err := errors.Join(w.f.Sync(), w.f.Close()); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
