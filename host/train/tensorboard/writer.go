package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cage-qat/cage/internal/vfs"
)

// Scalar is one number under its tag, "group/name".
type Scalar struct {
	Tag   string
	Value float64
}

// Writer appends events to a file. Each reaches the operating system in one write, so that a killed process leaves at
// most its last event incomplete, which readers ignore. It is not safe for concurrent use.
type Writer struct {
	f    vfs.File
	path vfs.Path
}

// Create creates dir and a new event file in it, named by the time. If older files in the directory have later steps
// than the given one, the run was resumed from a checkpoint: readers then drop these steps.
func Create(dir vfs.Path, step int, at time.Time) (*Writer, error) {
	if err := dir.MkdirAll(); err != nil {
		return nil, err
	}
	w, err := create(dir, at)
	if err != nil {
		return nil, err
	}
	first := message(nil).double(eventWallTime, float64(at.UnixNano())/1e9).text(eventFileVersion, fileVersion)
	start := event(step+1, at).message(eventSessionLog, message(nil).int(sessionStatus, sessionStart))
	if err := errors.Join(w.put(first), w.put(start)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// create opens a file that was not there. Readers take the files of a directory in the order of their names, so it comes
// after all others, also where the clock was set back or is that of another machine.
func create(dir vfs.Path, at time.Time) (*Writer, error) {
	second := at.Unix()
	others, err := dir.ReadDir()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		var its int64
		if n, _ := fmt.Sscanf(other.Name(), "events.out.tfevents.%d.", &its); n == 1 {
			second = max(second, its)
		}
	}
	for attempt := range 1000 {
		path := dir.Join(fmt.Sprintf("events.out.tfevents.%010d.%03d.cage", second, attempt))
		f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
		if err == nil {
			return &Writer{f: f, path: path}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s has too many event files of one second", dir)
}

func (w *Writer) put(e message) error {
	if _, err := w.f.Write(frame(e)); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Scalars appends the numbers of a step.
func (w *Writer) Scalars(step int, at time.Time, list []Scalar) error {
	var summary message
	for _, s := range list {
		summary = summary.message(summaryValue, scalar(s))
	}
	return w.put(event(step, at).message(eventSummary, summary))
}

// Text appends a text in Markdown under a tag.
func (w *Writer) Text(tag, content string, at time.Time) error {
	return w.put(event(0, at).message(eventSummary, message(nil).message(summaryValue, text(tag, content))))
}

// Close closes the file.
func (w *Writer) Close() error {
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Discard closes the file and removes it.
func (w *Writer) Discard() error { return errors.Join(w.Close(), w.path.Remove()) }
