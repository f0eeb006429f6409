package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

func newRuns() *cobra.Command {
	return group(&cobra.Command{
		Use:   "runs",
		Short: "List and describe run directories",
		Long: `List and describe run directories, including those of studies. A run is described by
the keys of its configuration (quantizer.bits), by the numbers of its summary.json
(val_loss), and by run, state and modified. While a run is not done, the numbers are those
of its newest record, and val_loss is that of its newest evaluation. The state is done,
running, interrupted (stopped or killed; it can be resumed), diverged, failed or
unreadable.`,
	}, newRunsList(), newRunsShow())
}

// roots lists the directories that are searched for runs by default. They are the parents of the
// default train.out and study.out.
var roots = []string{"runs", "studies"}

func newRunsList() *cobra.Command {
	var where, columns []string
	var by string
	var limit int
	cmd := &cobra.Command{
		Use:   "list [DIR...]",
		Short: "List runs, filtered and sorted",
		Long: `List the runs below the given directories, by default runs and studies, with their state,
steps, validation loss, and the keys of their configurations that differ.

  cage runs list --where quantizer.bits=4 --where 'val_loss<3' --sort val_loss
  cage runs list studies/main --columns run,method.lambda,val_ppl

A condition is NAME=VALUE, or != < <= > >= in place of =, or ~ for "contains".`,
		Args: notNegative(cobra.ArbitraryArgs, "limit"),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&where, "where", nil, "only runs that satisfy the `CONDITION` (repeatable)")
	flags.StringVar(&by, "sort", "run", "sort by `NAME`, or by -NAME in descending order")
	flags.StringSliceVar(&columns, "columns", nil, "columns to show: `NAME,...`")
	flags.IntVar(&limit, "limit", 0, "show at most this many runs; 0: all")
	return withOutput(cmd, func(cmd *cobra.Command, dirs []string) (*output, error) {
		if len(dirs) == 0 {
			dirs = slices.DeleteFunc(slices.Clone(roots), func(dir string) bool {
				_, err := os.Stat(dir)
				return errors.Is(err, fs.ErrNotExist)
			})
			if len(dirs) == 0 {
				return nil, errors.New("there is no directory runs or studies here: name a directory")
			}
		}
		list, err := new(rundir.Lister).List(cmd.Context(), dirs...)
		if err != nil {
			return nil, err
		}
		// Return an error for a filter, sort key or column that no run has.
		var conditions []rundir.Condition
		for _, text := range where {
			c, err := rundir.ParseCondition(text)
			if err != nil {
				return nil, usagef("--where: %w", err)
			}
			if err := rundir.CheckName(list, c.Name); err != nil {
				return nil, fmt.Errorf("--where %s: %w", text, err)
			}
			conditions = append(conditions, c)
		}
		name := by
		if len(name) > 1 {
			name = strings.TrimPrefix(name, "-")
		}
		if err := rundir.CheckName(list, name); err != nil {
			return nil, fmt.Errorf("--sort: %w", err)
		}
		for _, column := range columns {
			if err := rundir.CheckName(list, column); err != nil {
				return nil, fmt.Errorf("--columns: %w", err)
			}
		}
		list = rundir.Filter(list, conditions)
		rundir.Sort(list, by)
		if limit > 0 {
			list = list[:min(limit, len(list))]
		}
		if len(columns) == 0 {
			columns = append([]string{"run", "state", "steps", "val_loss"}, rundir.Varying(list, 4)...)
		}
		value, rows := []runListing{}, [][]string{columns}
		for _, r := range list {
			var row []string
			for _, name := range columns {
				text, ok := r.Lookup(name)
				if x, isResult := r.Result(name); isResult {
					text = metrics.Short(x)
				}
				if !ok {
					text = "–"
				}
				row = append(row, text)
			}
			value, rows = append(value, listingOf(r)), append(rows, row)
		}
		return tableOutput(value, rows), nil
	})
}

type runListing struct {
	Run      string                    `json:"run"`
	State    rundir.State              `json:"state"`
	Error    string                    `json:"error,omitempty"`
	Modified string                    `json:"modified"`
	Results  map[string]metrics.Number `json:"results"`
	Config   map[string]string         `json:"config"` // values in TOML
}

func listingOf(r *rundir.Run) runListing {
	out := runListing{Run: r.Dir, State: r.State, Error: r.Err,
		Modified: r.Modified.UTC().Format("2006-01-02T15:04:05Z"),
		Results:  map[string]metrics.Number{}, Config: map[string]string{}}
	for _, x := range r.Results() {
		out.Results[x.Name] = metrics.Number(x.Value)
	}
	for _, e := range r.Config() {
		out.Config[e.Key] = e.Value
	}
	return out
}
