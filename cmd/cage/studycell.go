package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
)

var errWaits = errors.New("the cell waits until a table has chosen its best setting: " +
	"other cells must be trained first")

func newStudyCell() *cobra.Command {
	opts := study.RunOptions{Share: true, Parallel: 1}
	var index int
	var id string
	cmd := &cobra.Command{
		Use:   "cell FILE",
		Short: "Train one cell of a study",
		Long: `Train and evaluate one cell of a study, given by its index in 'cage study status' or by
its ID, for example in a job array on a cluster. Other processes, including 'cage study
run --share', can train other cells at the same time. If another process trains this
cell, the command waits for it. If the cell quantizes the model of another cell, that
one is trained first.

The exit code is 0 if the cell is done, and 1 if it has failed. It is 130 if the cell was
stopped with a checkpoint, by SIGTERM or Ctrl-C, or waits until a table has chosen its
best setting: then run the same command again (requeue the task).`,
		Args: exactly(1, "one study file"),
	}
	flags := cmd.Flags()
	flags.IntVar(&index, "index", 0, "index of the cell, from 0")
	flags.StringVar(&id, "id", "", "`ID` of the cell, instead of --index")
	flags.BoolVar(&opts.Retry, "retry", false, "resume the cell if it has failed")
	flags.BoolVar(&opts.KeepStale, "keep-stale", false,
		"do not replace a stale run")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if flags.Changed("index") == flags.Changed("id") {
			return nil, usagef("want either --index or --id")
		}
		s, err := loadStudy(cmd, args[0])
		if err != nil {
			return nil, err
		}
		if flags.Changed("id") { // also if it is empty, such as an unset variable
			index = slices.IndexFunc(s.Cells, func(c study.Cell) bool { return c.ID == id })
		}
		switch {
		case index < 0 && flags.Changed("id"):
			return nil, usagef("--id %s: unknown cell; 'cage study status %s' lists the cells", id, s.File)
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
		results, err := readResults(cmd, s, "")
		if err != nil {
			return nil, err
		}
		list, label := listCells(s, results), s.Label(s.Cells[index])
		cell := list[index]
		// The cell may still be chosen, or the choice was made after this command had planned.
		open := s.Undecided(results)[cell.ID]
		text := string(cell.State)
		switch {
		case cell.Waits, cell.Unneeded && open, !cell.Unneeded && cell.State == study.Missing:
			err = fmt.Errorf("%s: %w", label, errWaits)
		case cell.State == study.Failed:
			err = fmt.Errorf("%s: failed: %s", label, cell.Error)
		case cell.Unneeded:
			text = "not needed: a table has chosen another cell"
		}
		return textOutput(cell, "%s: %s\n", label, text), err
	})
}
