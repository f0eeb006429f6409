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
		Short: "List and show run directories",
		Long: `List and show run directories, those of studies included. What a run is
known by is any key of its configuration (quantizer.bits), any number of its
summary.json (val_loss), and run, state and modified. Of a run that is not done the
numbers are those of its newest records, and val_loss is that of its newest evaluation.
The state is done, running, interrupted (stopped or killed, and can go on), diverged,
failed or unreadable.`,
	}, newRunsList(), newRunsShow())
}

// roots are the directories searched for runs if none is named: the defaults of train.out and
// study.out.
var roots = []string{"runs", "studies"}

func newRunsList() *cobra.Command {
	var where, columns []string
	var by string
	var limit int
	cmd := &cobra.Command{
		Use:   "list [DIR...]",
		Short: "List runs, filtered and sorted",
		Long: `List the runs below the given directories, by default runs and studies: their state,
steps and validation loss, and the keys of their configurations that tell them apart.

  cage runs list --where quantizer.bits=4 --where 'val_loss<3' --sort val_loss
  cage runs list studies/main --columns run,method.lambda,val_ppl

A condition is NAME=VALUE, or != < <= > >= in place of =, or ~ for "contains".`,
		Args: notNegative(cobra.ArbitraryArgs, "limit"),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&where, "where", nil, "only runs that fulfil the `CONDITION` (repeatable)")
	flags.StringVar(&by, "sort", "run", "sort by this `NAME`; with - in front of it from the largest")
	flags.StringSliceVar(&columns, "columns", nil, "`NAME`s to show, separated by commas")
	flags.IntVar(&limit, "limit", 0, "show at most this many runs; 0: all")
	return withAnswer(cmd, func(cmd *cobra.Command, dirs []string) (*answer, error) {
		if len(dirs) == 0 {
			dirs = slices.DeleteFunc(slices.Clone(roots), func(dir string) bool {
				_, err := os.Stat(dir)
				return errors.Is(err, fs.ErrNotExist)
			})
			if len(dirs) == 0 {
				return nil, errors.New("there is neither a directory runs nor studies here; name one")
			}
		}
		list, err := new(rundir.Lister).List(cmd.Context(), dirs...)
		if err != nil {
			return nil, err
		}
		// It is an error to filter, sort or show by a name that no run has.
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
		return tableAnswer(value, rows), nil
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
