package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Writer appends records to a metrics.jsonl. Each record is one line and reaches
// the operating system in one write, so that a killed process leaves at most its
// last line torn. It is not safe for use by several goroutines.
type Writer struct {
	f    *os.File
	last int // step of the last record
}

// Create starts a new file at path. It is an error when there is one already:
// the record of a run is never overwritten.
func Create(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &Writer{f: f}, nil
}

// Resume opens the file at path for a run that goes on after the given step.
// Records of later steps, which the resumed run will write again, and a torn last
// line are cut off. A file that does not exist is created: it is the file of a run
// that had not logged anything yet.
func Resume(path string, step int) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	w := &Writer{f: f}
	if err := w.cut(step); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %s: %w", path, err), f.Close())
	}
	return w, nil
}

// cut ends the file after its last record of at most the given step.
func (w *Writer) cut(step int) error {
	data, err := io.ReadAll(w.f)
	if err != nil {
		return err
	}
	var size int64
	for line, err := range lines(data) {
		if err != nil {
			return err
		}
		if line.record.Step > step {
			break
		}
		size, w.last = line.end, line.record.Step
	}
	if err := w.f.Truncate(size); err != nil {
		return err
	}
	return w.f.Sync()
}

// Write appends a record. Steps must not go backwards; several records may share
// one (a training record and an evaluation).
func (w *Writer) Write(r Record) error {
	if r.Step < w.last {
		return fmt.Errorf("metrics: record of step %d after one of step %d", r.Step, w.last)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("metrics: step %d: %w", r.Step, err)
	}
	if _, err := w.f.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	w.last = r.Step
	return nil
}

// Sync makes everything written so far durable; to be called before a checkpoint
// of the same step is saved.
func (w *Writer) Sync() error {
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close makes everything written durable and closes the file.
func (w *Writer) Close() error {
	if err := errors.Join(w.f.Sync(), w.f.Close()); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
