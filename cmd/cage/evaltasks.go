package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/query"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/tasks/ask"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// taskFlags are the flags of an evaluation on tasks.
type taskFlags struct {
	tasks.Settings
	out           string
	step, context int
	lifeline      bool
	quantizer     *trained.Quantizer // instead of the run's own; nil: that
}

func (f *taskFlags) add(cmd *cobra.Command) {
	addKeys(cmd, f.Keys())
	lifelineFlag(cmd, &f.lifeline)
	cmd.Flags().StringVar(&f.out, "out", "", "`DIR` for answers, samples and results of tasks; the same command goes on there")
}

// run has the model in dir answer the questions of the tasks.
func (f *taskFlags) run(cmd *cobra.Command, dir string) (*answer, error) {
	if f.Data == "" {
		return nil, usageError{fmt.Errorf("--data is missing: want the folder with the rows of the tasks")}
	}
	if err := checkKeys(cmd, f.Keys()); err != nil {
		return nil, err
	}
	list, err := openTasks(f.Names)
	if err != nil {
		return nil, usageError{err}
	}
	o := trained.Options{Step: f.step, Context: f.context, NoData: true, Score: true, Quantizer: f.quantizer}
	if slices.ContainsFunc(list, func(t *tasks.Task) bool { return t.Kind == tasks.Generation }) {
		o.Generate = f.Batch
	}
	model, err := openRun(cmd, dir, o)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	e := query.Tasks{Model: model, Dir: dir, Quantizer: f.quantizer, Source: f.Source,
		Chat: f.Chat, OneTurn: f.OneTurn, Batch: f.Batch, MaxTokens: f.MaxTokens, Out: f.out, Progress: func(task string) (func(done, of int), error) { return taskProgress(cmd, task) }}
	asked, err := e.Ask(cmd.Context(), list)
	if err != nil {
		return nil, err
	}
	results, err := e.Summarize(asked)
	if err != nil {
		return nil, err
	}
	return &answer{results, func(w io.Writer) { table(w, ask.Table(asked)) }}, nil
}

func openTasks(names []string) (list []*tasks.Task, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		t, err := tasks.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--tasks: %w", err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("--tasks: there are two of the name %q", t.Name)
		}
		seen[t.Name] = true
		list = append(list, t)
	}
	return list, nil
}

// taskProgress logs every ten seconds how many questions are answered, and how long the rest will take.
func taskProgress(cmd *cobra.Command, name string) (func(done, of int), error) {
	log, err := newLogger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	begun, due, first := time.Now(), throttle(10*time.Second), -1
	return func(done, of int) {
		if first < 0 {
			begun, first = time.Now(), done
		}
		if done == first || !due() {
			return
		}
		left := time.Duration(float64(time.Since(begun)) * float64(of-done) / float64(done-first))
		log.Info(fmt.Sprintf("%s: %d of %d answers, %s left", name, done, of, left.Round(time.Second)))
	}, nil
}

func newEvalRescore() *cobra.Command {
	var own []string
	cmd := &cobra.Command{
		Use:   "rescore DIR",
		Short: "Judge the answers of an evaluation again, without a model",
		Long: `Judge the answers in DIR, the --out of an evaluation of tasks, again: after a task's
filters or metrics have changed. No model is needed, and no file is changed.`,
		Args: exactly(1, "one --out of an evaluation"),
	}
	ownTasks(cmd, &own)
	return withAnswer(cmd, func(_ *cobra.Command, args []string) (*answer, error) {
		list, err := loadSamples(args[0], own)
		if err != nil {
			return nil, err
		}
		return &answer{ask.Summarize(list, nil), func(w io.Writer) { table(w, ask.Table(list)) }}, nil
	})
}

func newEvalCompare() *cobra.Command {
	var own []string
	cmd := &cobra.Command{
		Use:   "compare DIR DIR",
		Short: "Compare the answers of two models to the same questions",
		Long: `Compare two evaluations of tasks, each by its --out: the difference of each metric with
a 95 % interval (bootstrap over the questions, both models on the same ones), how many
questions one model alone has right, and how probable it is that chance divides them as
unevenly (McNemar, exact).`,
		Args: exactly(2, "two --out of evaluations"),
	}
	ownTasks(cmd, &own)
	return withAnswer(cmd, func(_ *cobra.Command, args []string) (*answer, error) {
		first, err := loadSamples(args[0], own)
		if err != nil {
			return nil, err
		}
		second, err := loadSamples(args[1], own)
		if err != nil {
			return nil, err
		}
		list, leftOut, err := ask.CompareAll(first, second)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", args[0], args[1], err)
		}
		if leftOut != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), leftOut)
		}
		return &answer{comparisonsJSON(list), func(w io.Writer) { table(w, comparisonTable(list)) }}, nil
	})
}

func ownTasks(cmd *cobra.Command, own *[]string) {
	cmd.Flags().StringSliceVar(own, "tasks", nil, "files (.toml) that describe tasks which do not come with cage")
}

func loadSamples(dir string, own []string) ([]*ask.Result, error) {
	list, err := openTasks(own)
	if err != nil {
		return nil, usageError{err}
	}
	loaded, err := ask.Load(vfs.At(dir), list)
	if errors.Is(err, tasks.ErrNone) {
		err = fmt.Errorf("%w; name the file of a task of your own with --tasks", err)
	}
	return loaded, err
}

func comparisonTable(list []ask.Comparison) [][]string {
	rows := [][]string{{"task", "metric", "items", "first", "second", "difference", "95 % interval", "only first", "only second", "McNemar p"}}
	for _, c := range list {
		p := "–"
		if !math.IsNaN(c.McNemar) {
			p = fmt.Sprintf("%.3g", c.McNemar)
		}
		rows = append(rows, []string{c.Task, c.Metric, fmt.Sprint(c.Items), fmt.Sprintf("%.4f", c.First), fmt.Sprintf("%.4f", c.Second), fmt.Sprintf("%+.4f", c.Difference),
			fmt.Sprintf("[%+.4f, %+.4f]", c.Low, c.High), fmt.Sprint(c.OnlyFirst), fmt.Sprint(c.OnlySecond), p})
	}
	return rows
}

// comparisonsJSON is what --json prints. The p-value is left out where it is not defined.
func comparisonsJSON(list []ask.Comparison) any {
	var out []map[string]any
	for _, c := range list {
		m := map[string]any{"task": c.Task, "metric": c.Metric, "items": c.Items, "first": metrics.Number(c.First), "second": metrics.Number(c.Second),
			"difference": metrics.Number(c.Difference), "low": metrics.Number(c.Low), "high": metrics.Number(c.High), "only_first": c.OnlyFirst, "only_second": c.OnlySecond}
		if !math.IsNaN(c.McNemar) {
			m["mcnemar"] = c.McNemar
		}
		out = append(out, m)
	}
	return out
}
