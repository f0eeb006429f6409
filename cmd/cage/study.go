package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
)

func newStudy() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "study",
		Short: "Run many trainings from one file, and report on them",
		Long: `Run many trainings from one file, and report on them. A study file gives a base
configuration, axes of settings, and tables and figures (docs/guide/studies.md). Each
combination of settings is a cell of the study.

  cage study run FILE       train and evaluate the cells that are not done
  cage study status FILE    list the cells with their indices and states
  cage study cell FILE      train and evaluate one cell
  cage study report FILE    write tables, figures and a page of the results
  cage study keep FILE      write the results to a small file, a snapshot`,
	}, surviveSIGPIPE(newStudyRun()), surviveSIGPIPE(newStudyCell()),
		newStudyStatus(), surviveSIGPIPE(newStudyReport()), surviveSIGPIPE(newStudyKeep()))
	for _, c := range cmd.Commands() {
		c.Flags().StringArray("set", nil,
			"override a key of the base: `KEY=VALUE` (repeatable)")
	}
	return cmd
}

func loadStudy(cmd *cobra.Command, file string) (*study.Study, error) {
	sets, err := cmd.Flags().GetStringArray("set")
	if err != nil {
		return nil, err
	}
	return study.Load(file, sets...)
}

func newStudyRun() *cobra.Command {
	var opts study.RunOptions
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Train the cells of a study that are not done",
		Long: `Train the cells of a study that are not done, several at once. Each is a separate process
'cage train'. An interrupted cell is resumed from its last checkpoint, a failed cell only
with --retry. A run whose plugins, data or models have changed since is stale: it is
moved to the directory stale of the study, and the cell is trained again, unless
--keep-stale is given. If the study file has evaluations, each trained cell is evaluated
by 'cage eval'.

Without --parallel and study.parallel, small models are trained in parallel, one on each
core, and large ones one after the other on all cores. On GPUs, each cell gets one GPU, or
device.count GPUs, and all GPUs are used. Ctrl-C stops the study with checkpoints, and the
same command resumes it. The exit code is 1 if a cell has failed.

With --share, several of these commands train one study together, on one machine or on
several machines that share its directory. Each cell is trained by one of them. If a
process is killed, another one resumes its cell.`,
		Args: notNegative(exactly(1, "one study file"), "parallel"),
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.Parallel, "parallel", 0,
		"cells at once; 0: as in the study file, or as the cores or GPUs allow")
	flags.BoolVar(&opts.Retry, "retry", false, "resume failed cells, too")
	flags.BoolVar(&opts.KeepStale, "keep-stale", false,
		"do not replace stale runs; reports leave them out")
	flags.BoolVar(&opts.Share, "share", false,
		"train the study together with other processes with this flag")
	keptFile := flags.String("kept", "",
		"do not train cells with results in this `FILE` of 'cage study keep'")
	only := flags.StringArray("only", nil,
		"train only cells with these labels: `AXIS=LABEL[,LABEL...]` (repeatable)")
	dry := flags.Bool("dry-run", false, "print the cells that would be trained, without training")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		s, err := loadStudy(cmd, args[0])
		if err != nil {
			return nil, err
		}
		if opts.Only, err = parseOnly(s, *only); err != nil {
			return nil, err
		}
		if opts.Survey, err = newSurvey(cmd); err != nil {
			return nil, err
		}
		if *keptFile != "" {
			if opts.Stored, err = readResults(cmd, s, *keptFile); err != nil {
				return nil, err
			}
		}
		if *dry {
			return dryRun(cmd, s, opts)
		}
		if *keptFile != "" {
			known := study.Count(opts.Stored) // failed are those that diverged, which is a result, too
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d cells have results in %s and are not trained\n",
				known.Done+known.Failed, known.Cells, *keptFile)
		}
		out, err := runStudy(cmd, s, opts)
		if err != nil && !errors.Is(err, study.ErrInterrupted) {
			return nil, err
		}
		if out.Failed > 0 {
			failed := fmt.Errorf("%d of %d cells failed: see 'cage study status %s' and --retry",
				out.Failed, out.Cells, s.File)
			err = errors.Join(err, failed)
		}
		return textOutput(struct {
			Study string `json:"study"`
			Out   string `json:"out"`
			study.Outcome
		}{s.Name, s.Out, out}, "%s", countsLine(s, out)), err
	})
}

func runStudy(cmd *cobra.Command, s *study.Study, opts study.RunOptions) (study.Outcome, error) {
	opts.Planned = func(p study.Plan) { printStale(cmd.ErrOrStderr(), s, p, opts.KeepStale) }
	display := console.NewStudy(unescaped(cmd.ErrOrStderr()))
	defer display.Close()
	opts.Watch = display.Watch
	return study.Run(cmd.Context(), s, opts)
}

// newSurvey returns a survey that checks configurations against the plugins and the data.
func newSurvey(cmd *cobra.Command) (study.Survey, error) {
	finder, opts, err := newFinder(cmd)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, list []*config.Config) []config.Finding {
		return build.Survey(ctx, list, finder, opts)
	}, nil
}

func printStale(w io.Writer, s *study.Study, p study.Plan, keep bool) {
	what := "is moved to " + s.StaleDir() + " and trained again"
	if keep {
		what = "is not trained again"
	}
	for _, r := range p.Results {
		if r.State == study.Stale {
			fmt.Fprintf(w, "%s: %s: the run %s\n", s.Label(r.Cell), r.Err, what)
		}
	}
}

func loadResults(cmd *cobra.Command, file string) (*study.Study, []study.Result, error) {
	s, err := loadStudy(cmd, file)
	if err != nil {
		return nil, nil, err
	}
	results, err := readResults(cmd, s, "")
	return s, results, err
}

// readResults reads the results of a study's run directories or, if kept is not empty, of the file
// of that name. It marks results whose plugins or data have changed since, and prints those that
// could not be compared to standard error.
func readResults(cmd *cobra.Command, s *study.Study, kept string) (list []study.Result, err error) {
	survey, err := newSurvey(cmd)
	if err != nil {
		return nil, err
	}
	ctx := cmd.Context()
	if kept == "" {
		if list, err = s.Results(); err == nil {
			err = s.FindStale(ctx, list, survey)
		}
	} else if file, failed := snapshot.ReadFor(s, kept); failed != nil {
		err = failed
	} else {
		list = file.Results(s)
		err = file.FindStale(ctx, s, list, survey)
	}
	if _, unknown := errors.AsType[*study.NotCompared](err); unknown && ctx.Err() == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", s.File, err)
		err = nil
	}
	return list, cmp.Or(ctx.Err(), err)
}

func parseOnly(s *study.Study, only []string) (map[string][]string, error) {
	where := map[string][]string{}
	for _, text := range only {
		fail := func(format string, args ...any) error {
			return usagef("--only %s: %w", text, fmt.Errorf(format, args...))
		}
		name, labels, found := strings.Cut(text, "=")
		if !found {
			return nil, fail("want AXIS=LABEL")
		}
		axis, ok := s.Axis(name)
		if !ok {
			return nil, fail("unknown axis %q; want one of %s", name, schema.Quoted(s.AxisNames()))
		}
		list := strings.Split(labels, ",")
		if slices.Contains(axis.Labels, labels) { // one label that contains commas
			list = []string{labels}
		}
		for _, label := range list {
			if !slices.Contains(axis.Labels, label) {
				return nil, fail("axis %q has no label %q; want one of %s",
					name, label, schema.Quoted(axis.Labels))
			}
		}
		where[name] = append(where[name], list...)
	}
	if !slices.ContainsFunc(s.Cells, func(c study.Cell) bool { return c.Matches(where) }) {
		return nil, usagef("--only %s: no cell of %s has all of these labels",
			strings.Join(only, " --only "), s.File)
	}
	return where, nil
}

func countsLine(s *study.Study, out study.Outcome) string {
	if out.Cells == 0 { // all cells have results
		return s.Out + ": there are no cells to train\n"
	}
	text := fmt.Sprintf("%s: %d of %d cells done", s.Out, out.Done, out.Cells)
	for _, c := range []struct {
		n    int
		what string
	}{{out.Failed, "failed"}, {out.Running, "running"}, {out.Unevaluated, "not evaluated"},
		{out.Stale, "stale"}, {out.Interrupted, "interrupted"}, {out.Missing, "missing"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text + "\n"
}

func dryRun(cmd *cobra.Command, s *study.Study, opts study.RunOptions) (*output, error) {
	plan, err := s.Plan(cmd.Context(), opts)
	if err != nil {
		return nil, err
	}
	list, rows := []map[string]any{}, [][]string{append(s.AxisNames(), "settings")}
	for _, c := range plan.Run {
		list = append(list,
			map[string]any{"id": c.ID, "labels": c.Labels, "dir": c.Dir, "set": c.Set})
		sets := lists.Map(c.Set, func(set study.Setting) string { return set.Key + "=" + set.Value })
		rows = append(rows, append(c.Of(s.AxisNames()), strings.Join(sets, " ")))
	}
	value := map[string]any{"study": s.Name, "out": s.Out, "parallel": plan.AtOnce,
		"threads": plan.Threads, "cells": list}
	return &output{value, func(w io.Writer) {
		printStale(w, s, plan, opts.KeepStale)
		fmt.Fprintf(w, "%d of %d cells would be trained, %d at once, with %d threads each\n",
			len(plan.Run), len(plan.Results), plan.AtOnce, plan.Threads)
		if len(plan.Run) > 0 {
			table(w, rows)
		}
		if n := len(plan.Waiting); n > 0 {
			fmt.Fprintf(w, "%d cells wait until a table has chosen its best setting\n", n)
		}
	}}, nil
}

type cellListing struct {
	Index    int                       `json:"index"` // in the study's order
	ID       string                    `json:"id"`
	Labels   map[string]string         `json:"labels"`
	Hash     string                    `json:"hash"` // of its configuration
	Dir      string                    `json:"dir"`
	State    study.State               `json:"state"`
	Error    string                    `json:"error,omitempty"`
	Waits    bool                      `json:"waits,omitempty"`  // for the choice of a table
	Unneeded bool                      `json:"spared,omitempty"` // no table includes it
	Set      []study.Setting           `json:"set,omitempty"`
	Summary  map[string]metrics.Number `json:"summary,omitempty"`
	Holder   *study.Holder             `json:"holder,omitempty"` // the process that works on it
}

// listCells describes the cells of a study, in order.
func listCells(s *study.Study, results []study.Result) []cellListing {
	unneeded, waiting := s.Prune(results)
	list := make([]cellListing, len(results))
	for i, r := range results {
		c := r.Cell
		list[i] = cellListing{
			Index: i, ID: c.ID, Labels: c.Labels, Hash: c.Hash, Dir: c.Dir, State: r.State,
			Error: r.Err, Waits: waiting[c.ID] && !r.HasOutcome(),
			Unneeded: unneeded[c.ID] && !r.HasOutcome(),
			Set:      c.Set, Summary: map[string]metrics.Number{},
		}
		for name, x := range r.Summary {
			list[i].Summary[name] = metrics.Number(x)
		}
		if r.State == study.Running {
			list[i].Holder = &results[i].Holder
		}
	}
	return list
}

func newStudyStatus() *cobra.Command {
	var keptFile string
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "List the cells of a study with their states",
		Long: `List the cells of a study with their indices and states: done, running (with its machine
and start time), interrupted, failed (with its error), missing, or stale (its plugins or
data have changed since). The command also works while the study runs. With --kept, show
the results in a file of 'cage study keep', and which of them are stale.

The index is the N of 'cage study cell FILE --index N', for example in a job array on a
cluster; it depends on the study file alone. A waiting cell is not needed before a table
has chosen its best setting (see best and spare in docs/guide/studies.md). Cells that no
table needs are not listed.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().StringVar(&keptFile, "kept", "",
		"show the results in this `FILE` of 'cage study keep' instead")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		s, err := loadStudy(cmd, args[0])
		if err != nil {
			return nil, err
		}
		results, err := readResults(cmd, s, keptFile)
		if err != nil {
			return nil, err
		}
		var needed []study.Result
		list, rows := []cellListing{}, [][]string{slices.Concat([]string{"index"}, s.AxisNames(),
			[]string{"state", "val loss", "error, machine or directory"})}
		for i, cell := range listCells(s, results) {
			if cell.Unneeded {
				continue
			}
			r, state := results[i], string(cell.State)
			if cell.Waits {
				state += ", waits"
			}
			loss, last := "–", cell.Dir
			if x, ok := r.Summary["val_loss"]; ok {
				loss = fmt.Sprintf("%.4f", x)
			}
			switch {
			case cell.Holder != nil:
				last = "on " + cell.Holder.Text(time.Now())
			case r.Err != "":
				last = strings.ReplaceAll(r.Err, "\n", "; ")
			case keptFile != "" && r.HasOutcome():
				last = "in " + keptFile
			}
			list, needed = append(list, cell), append(needed, r)
			rows = append(rows, slices.Concat([]string{strconv.Itoa(i)}, r.Cell.Of(s.AxisNames()),
				[]string{state, loss, last}))
		}
		total := study.Count(needed)
		value := map[string]any{"study": s.Name, "out": s.Out, "counts": total, "cells": list}
		return &output{value, func(w io.Writer) {
			table(w, rows)
			fmt.Fprint(w, countsLine(s, total))
		}}, nil
	})
}
