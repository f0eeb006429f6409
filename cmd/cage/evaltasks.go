package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/query"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/tasks/ask"
	"github.com/cage-qat/cage/host/deploy/trained"
)

// taskFlags say which tasks to ask a model, and how.
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

// run asks the model in dir.
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

// taskProgress reports what has been answered every few seconds, and how long the rest will take.
func taskProgress(cmd *cobra.Command, name string) (func(done, of int), error) {
	log, err := newLogger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	const pause = 10 * time.Second
	begun, next, first := time.Now(), time.Now().Add(pause), -1
	return func(done, of int) {
		now := time.Now()
		if first < 0 {
			begun, first = now, done
		}
		if now.Before(next) || done == first {
			return
		}
		next = now.Add(pause)
		left := time.Duration(float64(now.Sub(begun)) * float64(of-done) / float64(done-first))
		log.Info(fmt.Sprintf("%s: %d of %d answers, %s left", name, done, of, left.Round(time.Second)))
	}, nil
}
