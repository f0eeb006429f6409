package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/console"
)

const (
	followEvery   = 5 * time.Second // how often Slurm is asked: it serves others, too
	mostFruitless = 3               // arrays in a row in which no cell has ended
)

// followed is a study that was trained by arrays, as printed in JSON.
type followed struct {
	Study     string   `json:"study"`
	Out       string   `json:"out"`
	Arrays    []string `json:"arrays"`
	Cancelled []int    `json:"cancelled,omitempty"` // indices of cells whose tasks were cancelled
	study.Outcome
}

// following follows the job arrays of a study until nothing is left that another array could do.
type following struct {
	cmd     *cobra.Command
	study   *study.Study
	opts    study.RunOptions
	options []string // of sbatch
	display *console.Study
	look    *study.Follower
	out     followed
	held    string // what was said last of tasks that are held
	trouble bool   // the last question to Slurm had no answer
}

// followArrays follows an array, and those that it submits after it for cells whose tasks were killed or preempted, or that had to wait.
// Tasks that somebody has cancelled are not submitted again, and neither are cells that have failed.
func followArrays(cmd *cobra.Command, s *study.Study, opts study.RunOptions, options []string, a array) (*answer, error) {
	f := following{cmd: cmd, study: s, opts: opts, options: options, display: console.NewStudy(unescaped(cmd.ErrOrStderr()))}
	f.opts.Retry = false // which the first array does
	f.look = s.Follow(f.display.Watch)
	f.out.Study, f.out.Out = s.Name, s.Out
	err := f.all(cmd.Context(), a)
	f.display.Close()
	switch {
	case cmd.Context().Err() != nil:
		last := f.out.Arrays[len(f.out.Arrays)-1]
		fmt.Fprintf(cmd.ErrOrStderr(), "array %s goes on without this command; the same command follows it again, and scancel %s ends it\n", last, last)
		return nil, cmd.Context().Err()
	case err != nil:
		return nil, err
	case f.out.Failed > 0:
		err = fmt.Errorf("%d of %d cells failed; see 'cage study status %s', and --retry", f.out.Failed, f.out.Cells, s.File)
	}
	if n := len(f.out.Cancelled); n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: cells whose tasks were cancelled: %d of %d", study.ErrInterrupted, n, f.out.Cells))
	}
	return &answer{f.out, func(w io.Writer) { fmt.Fprint(w, countsLine(s, f.out.Outcome)) }}, err
}

// all follows one array after the other.
func (f *following) all(ctx context.Context, a array) error {
	for fruitless := 0; ; {
		f.out.Arrays = append(f.out.Arrays, a.job)
		before, known := f.out.Done+f.out.Failed, len(f.out.Arrays) > 1
		if err := f.one(ctx, a); err != nil {
			return err
		}
		if fruitless++; !known || f.out.Done+f.out.Failed > before {
			fruitless = 0
		}
		plan, err := f.study.Plan(ctx, f.opts)
		if err != nil {
			return err
		}
		cells := slices.DeleteFunc(indices(f.study, plan.Run), func(i int) bool { return slices.Contains(f.out.Cancelled, i) })
		switch {
		case len(cells) == 0:
			return ctx.Err()
		case fruitless == mostFruitless:
			return fmt.Errorf("%s: %d arrays in a row have ended, and no cell with them; %d cells are left, and the files slurm-JOB_TASK.log there tell why", f.study.Out, mostFruitless, len(cells))
		}
		script, err := slurmText(f.study, cells, false, f.options)
		if err != nil {
			return err
		}
		if a, err = sbatch(ctx, f.study, script); err != nil {
			return err
		}
		f.display.Say(fmt.Sprintf("array %s, for what is left: %d of %d cells", a, len(cells), f.out.Cells))
	}
}

// one follows an array until Slurm has no task of it left, and no process works on a cell.
func (f *following) one(ctx context.Context, a array) error {
	states := map[int]string{} // that tasks were seen in last: Slurm forgets tasks that have ended
	defer func() {
		for index, state := range states {
			if state == "CANCELLED" && !slices.Contains(f.out.Cancelled, index) {
				f.out.Cancelled = append(f.out.Cancelled, index)
			}
		}
		slices.Sort(f.out.Cancelled)
	}()
	for {
		q, err := squeue(ctx, a)
		answered := err == nil || errors.Is(err, errGone)
		if !answered && ctx.Err() == nil && !f.trouble {
			f.display.Say(fmt.Sprintf("%v; trying again", err))
		}
		f.trouble = !answered
		for _, t := range q {
			states[t.index] = t.state
		}
		if held := q.held().String(); held != f.held {
			if f.held = held; held != "" {
				f.display.Say(fmt.Sprintf("array %s: %s; scontrol release %s lets them go on", a, held, a))
			}
		}
		note := "array " + a.job
		if text := q.String(); text != "" {
			note += ": " + text
		}
		out, err := f.look.Look(note)
		if err != nil {
			return err
		}
		f.out.Outcome = out
		if answered && len(q.open()) == 0 && out.Running == 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}
