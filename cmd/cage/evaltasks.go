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
	names         []string
	data          string
	examples      string
	shots         int
	limit         int
	batch         int
	maxTokens     int
	chat, oneTurn bool
	out           string
	step, context int
	lifeline      bool
	quantizer     *trained.Quantizer // instead of the run's own; nil: that
}

// taskDefault is the value of --fewshot that leaves it to the task.
const taskDefault = -1

func (f *taskFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.names, "tasks", nil, "names of evaluation tasks, or files that describe one (.toml); --data is then the folder with their rows")
	flags.StringVar(&f.examples, "examples", "", "`DIR` with TASK.jsonl for tasks whose examples are fixed (question and target)")
	flags.IntVar(&f.shots, "fewshot", taskDefault, "examples before each question; default: the task's number")
	flags.IntVar(&f.limit, "limit", 0, "ask only the first questions of each task; 0: all")
	flags.IntVar(&f.batch, "batch", 8, "texts that are generated at once")
	flags.IntVar(&f.maxTokens, "max-tokens", 0, "tokens of a generated answer; 0: the task's number")
	flags.BoolVar(&f.chat, "chat", false, "put questions into the model's template of conversations")
	flags.BoolVar(&f.oneTurn, "one-turn", false, "with --chat: examples and question in one message")
	lifelineFlag(cmd, &f.lifeline)
	flags.StringVar(&f.out, "out", "", "`DIR` for answers, samples and results of tasks; the same command goes on there")
}

// run asks the model in dir.
func (f *taskFlags) run(cmd *cobra.Command, dir string) (*answer, error) {
	if f.data == "" {
		return nil, usageError{fmt.Errorf("--data is missing: want the folder with the rows of the tasks")}
	}
	if f.batch < 1 || f.shots < taskDefault {
		return nil, usageError{fmt.Errorf("--batch %d, --fewshot %d: want at least 1 and 0", f.batch, f.shots)}
	}
	list, err := openTasks(f.names)
	if err != nil {
		return nil, usageError{err}
	}
	o := trained.Options{Step: f.step, Context: f.context, NoData: true, Score: true, Quantizer: f.quantizer}
	if slices.ContainsFunc(list, func(t *tasks.Task) bool { return t.Kind == tasks.Generation }) {
		o.Generate = f.batch
	}
	model, err := openRun(cmd, dir, o)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	e := query.Tasks{Model: model, Dir: dir, Quantizer: f.quantizer, Source: tasks.Source{Data: f.data, Examples: f.examples, Shots: f.shots, Limit: f.limit},
		Chat: f.chat, OneTurn: f.oneTurn, Batch: f.batch, MaxTokens: f.maxTokens, Out: f.out, Progress: func(task string) (func(done, of int), error) { return taskProgress(cmd, task) }}
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
