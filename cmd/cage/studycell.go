package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
)

var errWaits = errors.New("the cell waits for what a table chooses: others are to be trained first")

type plannedCell struct {
	Index  int               `json:"index"`
	ID     string            `json:"id"`
	Labels map[string]string `json:"labels"`
	Hash   string            `json:"hash"`
	State  study.State       `json:"state"`
	Error  string            `json:"error,omitempty"`
	Waits  bool              `json:"waits,omitempty"`  // for the choice of a table
	Pruned bool              `json:"spared,omitempty"` // no table includes it
}

func plannedCells(s *study.Study, results []study.Result) []plannedCell {
	pruned, waiting := s.Prune(results)
	list := make([]plannedCell, len(results))
	for i, r := range results {
		c := r.Cell
		list[i] = plannedCell{
			Index: i, ID: c.ID, Labels: c.Labels, Hash: c.Hash, State: r.State, Error: r.Err,
			Waits: waiting[c.ID] && !r.Known(), Pruned: pruned[c.ID] && !r.Known()}
	}
	return list
}

func newStudyPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "List the cells of a study in their order",
		Long: `List all cells of a study in their order, with their states. The first column is the
number by which 'cage study cell FILE --index N' trains a cell, as a task of a job array
of a cluster does. It depends on the study file alone. With --json each cell has its ID,
its labels and the hash of its configuration, too. A cell that waits is not needed until
a table has chosen, see best and spare in docs/guide/studies.md; one that is pruned is not
needed at all.`,
		Args: exactly(1, "one study file"),
	}
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		s, results, err := loadResults(cmd, args[0])
		if err != nil {
			return nil, err
		}
		list, axes := plannedCells(s, results), s.AxisNames()
		rows := [][]string{slices.Concat([]string{"index"}, axes, []string{"state", "ID"})}
		for i, p := range list {
			state := string(p.State)
			switch {
			case p.Waits:
				state += ", waits"
			case p.Pruned:
				state += ", pruned"
			}
			labels := results[i].Cell.Of(axes)
			rows = append(rows,
				slices.Concat([]string{strconv.Itoa(i)}, labels, []string{state, p.ID}))
		}
		return tableAnswer(map[string]any{"study": s.Name, "out": s.Out, "cells": list}, rows), nil
	})
}

func newStudyCell() *cobra.Command {
	opts := study.RunOptions{Share: true, Parallel: 1}
	var index int
	var id string
	cmd := &cobra.Command{
		Use:   "cell FILE",
		Short: "Train one cell of a study",
		Long: `Train and evaluate one cell of a study, named by its place in the list of 'cage study
plan' or by its ID: for a task of a job array on a cluster. Other such processes may
train other cells meanwhile, and so may 'cage study run --share'. One that has the same
cell is waited for. A cell that is quantized from the model of another one has that
trained first.

The exit code is 0 when the cell is done, now or before, and 1 when it has failed. It is
130 when the cell has been stopped, by SIGTERM or Ctrl-C, with a checkpoint, or waits for
what a table chooses: then the same command continues, and the task is to be requeued.`,
		Args: exactly(1, "one study file"),
	}
	flags := cmd.Flags()
	flags.IntVar(&index, "index", 0, "place of the cell, from 0")
	flags.StringVar(&id, "id", "", "its `ID`, in place of --index")
	flags.BoolVar(&opts.Retry, "retry", false, "train it also if it has failed, from where it stopped")
	flags.BoolVar(&opts.KeepStale, "keep-stale", false,
		"leave a run of changed plugins or data as it is")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if flags.Changed("index") == flags.Changed("id") {
			return nil, usagef("want --index or --id: which cell")
		}
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		if id != "" {
			index = slices.IndexFunc(s.Cells, func(c study.Cell) bool { return c.ID == id })
		}
		switch {
		case index < 0 && id != "":
			return nil, usagef("--id %s: there is no such cell; 'cage study plan %s' lists them", id, s.File)
		case index < 0 || index >= len(s.Cells):
			return nil, usagef("--index %d: want 0 to %d; 'cage study plan %s' lists the cells",
				index, len(s.Cells)-1, s.File)
		}
		if opts.Survey, err = newSurvey(cmd); err != nil {
			return nil, err
		}
		opts.IDs = []string{s.Cells[index].ID}
		if _, err := runStudy(cmd, s, opts); err != nil {
			return nil, err
		}
		results, err := s.Results()
		if err != nil {
			return nil, err
		}
		cell, label := plannedCells(s, results)[index], s.Label(s.Cells[index])
		text := string(cell.State)
		switch {
		case cell.Waits:
			err = fmt.Errorf("%s: %w", label, errWaits)
		case cell.State == study.Failed:
			err = fmt.Errorf("%s: failed: %s", label, cell.Error)
		case cell.Pruned:
			text = "not needed: a table has chosen another one"
		}
		return textAnswer(cell, "%s: %s\n", label, text), err
	})
}
