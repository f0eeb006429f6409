package main

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/tasks/ask"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

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
	return answering(cmd, func(_ *cobra.Command, args []string) (*answer, error) {
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
	return answering(cmd, func(_ *cobra.Command, args []string) (*answer, error) {
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

// comparisonsJSON is what --json prints; a probability that there is none of is left out.
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
