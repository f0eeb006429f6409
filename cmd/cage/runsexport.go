package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/tensorboard"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func newRunsExport() *cobra.Command {
	var table, events string
	cmd := &cobra.Command{
		Use:   "export RUN...",
		Short: "Write the records of runs for other programs",
		Long: `Write the records of runs for other programs: as one table of comma-separated values, or as
event files, which TensorBoard shows and Weights & Biases takes.

  cage runs export runs/a runs/b --csv records.csv
  cage runs export runs/* --tensorboard events
  tensorboard --logdir events
  wandb sync --sync-tensorboard events/a    (wandb up to 0.29; docs/serve.md has a way for later ones)

A run with train.tensorboard = true writes event files while it trains.`,
		Args: atLeastOne("run directory"),
	}
	cmd.Flags().StringVar(&table, "csv", "", "write a table to `FILE`; -: to the standard output")
	cmd.Flags().StringVar(&events, "tensorboard", "", "write event files to `DIR`, a folder for each run")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		switch {
		case table == "" && events == "":
			return nil, usageError{errors.New("want --csv FILE or --tensorboard DIR")}
		case table != "" && events != "":
			return nil, usageError{errors.New("want --csv FILE or --tensorboard DIR, one at a time")}
		}
		list, err := recordsOf(cmd.ErrOrStderr(), args)
		if err != nil {
			return nil, err
		}
		switch {
		case table == "-":
			return nil, writeCSV(cmd.OutOrStdout(), list)
		case table != "":
			var to vfs.Path
			if to, err = atomicfile.Target(table); err == nil {
				err = atomicfile.Write(to, func(w io.Writer) error { return writeCSV(w, list) })
			}
		default:
			err = writeEvents(vfs.At(events), list)
		}
		if err != nil {
			return nil, err
		}
		return inWords(map[string]any{"runs": len(list), "out": table + events}, "the records of %d runs are in %s\n", len(list), table+events), nil
	})
}

// recorded is a run with its records.
type recorded struct {
	*rundir.Run
	name    string // see runNames
	records []metrics.Record
}

// recordsOf reads the records of runs. It says on log which have none, such as imported models, and leaves them out.
func recordsOf(log io.Writer, dirs []string) (list []recorded, err error) {
	names := runNames(dirs)
	for i, dir := range dirs {
		r := recorded{name: names[i]}
		if r.Run, err = rundir.Open(dir); err != nil {
			return nil, err
		}
		r.records, err = metrics.Read[metrics.Record](rundir.At(dir).Metrics())
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

// runNames are the names of run directories: the last part of their paths; of several with the same as many parts as tell them
// apart.
func runNames(dirs []string) []string {
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

// writeCSV writes a line for each record, with a column for each number that any of them has.
func writeCSV(w io.Writer, list []recorded) error {
	columns, place := []string{"run"}, map[string]int{}
	for _, r := range list {
		for _, rec := range r.records {
			for _, v := range rec.Values() {
				if place[v.Name] == 0 {
					place[v.Name] = len(columns)
					columns = append(columns, v.Name)
				}
			}
		}
	}
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	line := make([]string, len(columns))
	for _, r := range list {
		for _, rec := range r.records {
			clear(line)
			line[0] = r.name
			for _, v := range rec.Values() {
				line[place[v.Name]] = metrics.Exact(v.Number)
			}
			if err := out.Write(line); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// writeEvents writes an event file for each run: for all, or for none if one of them has files already.
func writeEvents(dir vfs.Path, list []recorded) error {
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

func (r recorded) writeEvents(to vfs.Path) (err error) {
	toml, err := rundir.At(r.Dir).Config().ReadFile()
	if err != nil {
		return err
	}
	// Records have the seconds since the start, and the last was written when the file was.
	begun := r.Modified
	if n := len(r.records); n > 0 {
		begun = begun.Add(-seconds(r.records[n-1]))
	}
	w, err := tensorboard.Create(to, 0, begun)
	if err != nil {
		return err
	}
	err = tensorboard.Configuration(w, string(toml), begun)
	for _, rec := range r.records {
		if err == nil {
			err = w.Scalars(rec.Step, begun.Add(seconds(rec)), tensorboard.Of(rec))
		}
	}
	if err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Close()
}

func seconds(r metrics.Record) time.Duration {
	return time.Duration(float64(r.Seconds) * float64(time.Second))
}
