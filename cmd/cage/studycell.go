package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
)

var errWaits = errors.New("the cell waits for what a table chooses: others are to be trained first")

func newStudyCell() *cobra.Command {
	opts := study.RunOptions{Share: true, Parallel: 1}
	var index int
	var id string
	cmd := &cobra.Command{
		Use:   "cell FILE",
		Short: "Train one cell of a study",
		Long: `Train and evaluate one cell of a study, named by its index in the list of 'cage study
status' or by its ID: for a task of a job array on a cluster. Other such processes may
train other cells meanwhile, and so may 'cage study run --share'. One that has the same
cell is waited for. A cell that is quantized from the model of another one has that
trained first.

The exit code is 0 when the cell is done, now or before, and 1 when it has failed. It is
130 when the cell has been stopped, by SIGTERM or Ctrl-C, with a checkpoint, or waits for
what a table chooses: then the same command continues, and the task is to be requeued.`,
		Args: exactly(1, "one study file"),
	}
	flags := cmd.Flags()
	flags.IntVar(&index, "index", 0, "index of the cell, from 0")
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
			return nil, usagef("--id %s: there is no such cell; 'cage study status %s' lists them", id, s.File)
		case index < 0 || index >= len(s.Cells):
			return nil, usagef("--index %d: want 0 to %d; 'cage study status %s' lists the cells",
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
		cell, label := listCells(s, results)[index], s.Label(s.Cells[index])
		text := string(cell.State)
		switch {
		case cell.Waits:
			err = fmt.Errorf("%s: %w", label, errWaits)
		case cell.State == study.Failed:
			err = fmt.Errorf("%s: failed: %s", label, cell.Error)
		case cell.Unneeded:
			text = "not needed: a table has chosen another one"
		}
		return textAnswer(cell, "%s: %s\n", label, text), err
	})
}
