package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cage-qat/cage/internal/vfs"
)

// Writer appends records to a metrics.jsonl. Each record is one line and reaches
// the operating system in one write, so that a killed process leaves at most its
// last line torn. After an error the next record takes the place of the one that could
// not be written. It is not safe for use by several goroutines.
type Writer struct{ journal }

// Create starts a new file at path. It is an error when there is one already:
// the record of a run is never overwritten.
func Create(path vfs.Path) (*Writer, error) {
	j, err := create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{j}, nil
}

// Resume opens the file at path for a run that goes on after the given step.
// Records of later steps, which the resumed run will write again, and a torn last
// line are cut off, as is other damage behind the records that are kept. A file that does not exist is created: it is the file of a run
// that had not logged anything yet.
func Resume(path vfs.Path, step int) (*Writer, error) {
	j, err := resume[Record](path, step)
	if err != nil {
		return nil, err
	}
	return &Writer{j}, nil
}

// Write appends a record. Steps must not go backwards; several records may share
// one (a training record and an evaluation).
func (w *Writer) Write(r Record) error { return w.append(r) }

// entry is one line of a journal: what is known after a step.
type entry interface{ at() (step int) }

// journal is a file of lines in the order of their steps.
type journal struct {
	f      vfs.File
	last   int   // step of the last line
	size   int64 // of the lines
	torn   bool  // whether a part of a line that could not be written may follow
	damage error // of the lines that were cut off
}

// Damage is what was wrong with the first of the complete lines that were cut off
// because they are none, as after a loss of power; nil when there was no such line.
func (j *journal) Damage() error { return j.damage }

func create(path vfs.Path) (journal, error) {
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return journal{}, fmt.Errorf("metrics: %w", err)
	}
	if err := path.Dir().SyncDir(); err != nil { // the name is to be as durable as the records
		return journal{}, errors.Join(fmt.Errorf("metrics: %w", err), f.Close())
	}
	return journal{f: f}, nil
}

func resume[E entry](path vfs.Path, step int) (journal, error) {
	f, err := path.OpenFile(os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return journal{}, fmt.Errorf("metrics: %w", err)
	}
	j := journal{f: f}
	err = cut[E](&j, step)
	if err == nil {
		err = path.Dir().SyncDir()
	}
	if err != nil {
		return journal{}, errors.Join(fmt.Errorf("metrics: %s: %w", path, err), f.Close())
	}
	return j, nil
}

// cut ends the file after its last entry of at most the given step. Lines that are no
// entries are cut off with the rest. Where an entry that is to stay follows them, or
// nothing would stay of a run that has done steps, the damage is an error instead.
func cut[E entry](j *journal, step int) error {
	data, err := io.ReadAll(j.f)
	if err != nil {
		return err
	}
	var size int64
	for line, err := range lines[E](data) {
		if err != nil {
			if j.damage == nil {
				j.damage = err
			}
			continue
		}
		if line.entry.at() > step {
			break
		}
		if j.damage != nil {
			return j.damage
		}
		size, j.last = line.end, line.entry.at()
	}
	if j.damage != nil && size == 0 && step > 0 {
		return j.damage
	}
	j.size = size
	if err := j.f.Truncate(size); err != nil {
		return err
	}
	return j.f.Sync()
}

func (j *journal) append(e entry) error {
	if e.at() < j.last {
		return fmt.Errorf("metrics: record of step %d after one of step %d", e.at(), j.last)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("metrics: step %d: %w", e.at(), err)
	}
	if err := j.write(append(text, '\n')); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	j.last = e.at()
	return nil
}

// write appends a line, in the place of one that could not be written before.
func (j *journal) write(line []byte) error {
	if j.torn {
		if err := j.f.Truncate(j.size); err != nil {
			return err
		}
	}
	_, err := j.f.Write(line)
	j.torn = err != nil
	if err == nil {
		j.size += int64(len(line))
	}
	return err
}

// Sync makes everything written so far durable; to be called before a checkpoint
// of the same step is saved.
func (j *journal) Sync() error {
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close makes everything written durable and closes the file.
func (j *journal) Close() error {
	if err := errors.Join(j.f.Sync(), j.f.Close()); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
