// Package records writes the records of several runs for other programs: as one table, or as event files of TensorBoard.
package records

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/tensorboard"
	"github.com/cage-qat/cage/internal/vfs"
)

// Run is a run that has records.
type Run struct {
	*rundir.Run
	name  string        // see [Names]
	count int           // of its records
	last  time.Duration // from its start to the last of them
}

// Open looks once at all records of runs, which may be too many to be kept. It says on log which runs have none, such as
// imported models, and leaves them out.
func Open(log io.Writer, dirs []string, look func(metrics.Record)) (list []Run, err error) {
	names := Names(dirs)
	for i, dir := range dirs {
		r := Run{name: names[i]}
		if r.Run, err = rundir.Open(dir); err != nil {
			return nil, err
		}
		for rec, wrong := range metrics.Each[metrics.Record](rundir.At(dir).Metrics()) {
			if err = wrong; err == nil {
				look(rec)
				r.count, r.last = r.count+1, seconds(rec)
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(log, "%s has no records, and is left out\n", dir)
		case err != nil:
			return nil, err
		default:
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there are no records to write")
	}
	return list, nil
}

// each passes on the records that were there at the first look: a run may have more by now.
func (r Run) each(pass func(metrics.Record) error) error {
	left := r.count
	for rec, err := range metrics.Each[metrics.Record](rundir.At(r.Dir).Metrics()) {
		if left == 0 {
			break
		}
		left--
		if err != nil {
			return err
		}
		if err := pass(rec); err != nil {
			return err
		}
	}
	return nil
}

// Names are the names of run directories: the last part of their paths; of several with the same as many parts as tell them
// apart.
func Names(dirs []string) []string {
	paths, names := make([]string, len(dirs)), make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = dir
		if abs, err := filepath.Abs(dir); err == nil {
			paths[i] = abs // of "." and ".." as well
		}
	}
	for i, path := range paths {
		names[i] = lastParts(path, 1)
	}
	for parts := 2; ; parts++ { // whole paths differ
		owner, shared := map[string]string{}, map[string]bool{}
		for i, name := range names {
			if other, taken := owner[name]; taken && other != paths[i] {
				shared[name] = true
			}
			owner[name] = paths[i]
		}
		if len(shared) == 0 {
			return names
		}
		for i, path := range paths {
			if shared[names[i]] {
				names[i] = lastParts(path, parts)
			}
		}
	}
}

// lastParts are so many parts at the end of a path.
func lastParts(path string, n int) string {
	parts := strings.Split(strings.Trim(filepath.ToSlash(path), "/"), "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}

// Columns are the names of numbers, in the order in which records have them.
type Columns struct {
	names []string
	place map[string]int // in names
}

// Add adds those of a record.
func (c *Columns) Add(rec metrics.Record) {
	if c.place == nil {
		c.place = map[string]int{}
	}
	for _, v := range rec.Values() {
		if _, known := c.place[v.Name]; !known {
			c.place[v.Name] = len(c.names)
			c.names = append(c.names, v.Name)
		}
	}
}

// Write writes a line for each record, with a column for each number that any of them has.
func (c *Columns) Write(w io.Writer, list []Run) error {
	out := csv.NewWriter(w)
	if err := out.Write(append([]string{"run"}, c.names...)); err != nil {
		return err
	}
	line := make([]string, 1+len(c.names))
	for _, r := range list {
		err := r.each(func(rec metrics.Record) error {
			clear(line)
			line[0] = r.name
			for _, v := range rec.Values() {
				at, known := c.place[v.Name]
				if !known {
					return fmt.Errorf("the records of %s were changed while they were read: try again", r.Dir)
				}
				line[1+at] = metrics.Exact(v.Number)
			}
			return out.Write(line)
		})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// WriteEvents writes an event file for each run: for all, or for none if one of them has files already.
func WriteEvents(dir vfs.Path, list []Run) error {
	for _, r := range list {
		to := dir.Join(r.name)
		if there, err := to.ReadDir(); len(there) > 0 {
			return fmt.Errorf("%s has files already: give another directory", to)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, r := range list {
		if err := r.writeEvents(dir.Join(r.name)); err != nil {
			return err
		}
	}
	return nil
}

func (r Run) writeEvents(to vfs.Path) (err error) {
	toml, err := rundir.At(r.Dir).Config().ReadFile()
	if err != nil {
		return err
	}
	// Records have the seconds since the start, and the last was written when the file was.
	begun := r.Modified.Add(-r.last)
	w, err := tensorboard.Create(to, 0, begun)
	if err != nil {
		return err
	}
	err = w.Configuration(string(toml), begun)
	if err == nil {
		err = r.each(func(rec metrics.Record) error {
			return w.Scalars(rec.Step, begun.Add(seconds(rec)), tensorboard.Of(rec))
		})
	}
	if err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Close()
}

func seconds(r metrics.Record) time.Duration {
	return time.Duration(float64(r.Seconds) * float64(time.Second))
}
