package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
)

// submission is a job array as printed in JSON.
type submission struct {
	Cells   []int  `json:"cells"`   // indices
	Waiting int    `json:"waiting"` // cells that wait for what a table chooses
	Script  string `json:"script"`
	Array   string `json:"array,omitempty"` // its number, once it is submitted
}

func newStudySubmit() *cobra.Command {
	var slurm, dry bool
	var opts study.RunOptions
	cmd := &cobra.Command{
		Use:   "submit FILE --slurm [-- OPTION...]",
		Short: "Submit the cells of a study to a cluster",
		Long: `Write a batch script for Slurm, with a task for each cell that is not done, and submit it
with sbatch. Each task is a 'cage study cell'. Options of sbatch follow two dashes:

  cage study submit bits.toml --slurm -- --partition=gpu --gpus=1 --time=4:00:00

Before its time is over, study.stop_minutes and two more, a task saves a checkpoint and
is queued again; so is a cell that waits for what a table chooses. The script and what
tasks print are in the study's directory.

The command submits and ends; 'cage study status' shows how far the cells are. When the
array has ended, the same command submits what is left: cells that were killed, preempted
or cancelled, and those that had to wait until a table has chosen.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args = args[:n]
			}
			return exactly(1, "one study file")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&slurm, "slurm", false, "to Slurm")
	flags.BoolVar(&dry, "dry-run", false, "print the script, and submit nothing")
	flags.BoolVar(&opts.Retry, "retry", false, "submit failed cells, too")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if !slurm {
			return nil, usageError{errors.New("want --slurm: where to")}
		}
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		if opts.Survey, err = newSurvey(cmd); err != nil {
			return nil, err
		}
		if last := lastArray(s); last.job != "" && !dry {
			// A second array would wait for the cells of the first.
			switch left, err := tasksLeft(cmd.Context(), last); {
			case err != nil:
				return nil, err
			case left != "":
				return nil, fmt.Errorf("%s: Slurm has array %s of it already: %s", s.Out, last, left)
			}
		}
		plan, err := s.Plan(cmd.Context(), opts)
		if err != nil {
			return nil, err
		}
		job := submission{Cells: indices(s, plan.Run), Waiting: len(plan.Waiting)}
		if len(job.Cells) == 0 {
			return textAnswer(job, "%s: no cell is left to train\n", s.Out), nil
		}
		if job.Script, err = slurmText(s, job.Cells, opts.Retry, args[1:]); err != nil {
			return nil, err
		}
		if dry {
			return exactAnswer(job, job.Script), nil
		}
		a, err := sbatch(cmd.Context(), s, job.Script)
		if err != nil {
			return nil, err
		}
		job.Array = a.job
		return &answer{job, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d tasks: array %s\n", s.Out, len(job.Cells), a)
			if job.Waiting > 0 {
				fmt.Fprintf(w, "%d more cells wait for what a table chooses: submit them when these are done\n", job.Waiting)
			}
		}}, nil
	})
}

// indices are the places of cells in the study. Cells that share a run have the place of the first.
func indices(s *study.Study, cells []study.Cell) []int {
	list, wanted := []int{}, map[string]bool{} // written as [], not as null
	for _, c := range cells {
		wanted[c.ID] = true
	}
	for i, c := range s.Cells {
		if wanted[c.ID] {
			list, wanted[c.ID] = append(list, i), false
		}
	}
	return list
}
