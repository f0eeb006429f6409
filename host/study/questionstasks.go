package study

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// taskQuestions asks the questions of evaluation tasks, as `cage eval --tasks` does.
type taskQuestions struct {
	tasks.Settings
	List []*tasks.Task // those of the settings
}

var _ evaluation = (*taskQuestions)(nil)

// ID implements [evaluation].
func (e *taskQuestions) ID() string {
	var names, hashes []string
	for _, t := range e.List {
		names, hashes = append(names, t.Name), append(hashes, t.Hash())
	}
	return identify(strings.Join(names, "-"), []any{hashes, e.Source.Shots, e.Source.Limit, e.Batch, e.MaxTokens, e.Chat, e.OneTurn})
}

// Metrics implements [evaluation]: "TASK.METRIC", followed by a comma and the filter if the task
// has filters.
func (e *taskQuestions) Metrics() (list []measure) {
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			list = append(list, measure{metricName(t, name), tasks.HigherIsBetter(name)})
		}
	}
	return list
}

func metricName(t *tasks.Task, name string) string {
	return t.Name + "." + strings.TrimSuffix(name, ","+tasks.NoFilter)
}

// Arguments implements [evaluation].
func (e *taskQuestions) Arguments(run, out string) []string {
	return append([]string{"eval", run, "--out", out, "--json", "--lifeline"}, schema.Arguments(e.Keys())...)
}

// Read implements [evaluation].
func (e *taskQuestions) Read(out vfs.Path) (map[string]float64, error) {
	path := out.Join("results.json")
	text, err := path.ReadFile()
	if err != nil {
		return nil, err
	}
	var file struct {
		Results map[string]map[string]any `json:"results"`
	}
	if err := plainjson.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := map[string]float64{}
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			x, err := strconv.ParseFloat(fmt.Sprint(file.Results[t.Name][name]), 64)
			if err != nil {
				return nil, fmt.Errorf("%s: no number %s of the task %s", path, name, t.Name)
			}
			found[metricName(t, name)] = x
		}
	}
	return found, nil
}

// Rows implements [evaluation].
func (e *taskQuestions) Rows() (string, error) {
	var files []string
	for _, t := range e.List {
		questions, examples, err := e.Source.Files(t)
		if err != nil {
			return "", fmt.Errorf("%s: %w", t.Name, err)
		}
		files = slices.Concat(files, questions, examples)
	}
	return hashFiles(files)
}

// Check implements [evaluation].
func (e *taskQuestions) Check() error {
	encoder := &tasks.Encoder{Encode: func(text string) ([]int32, error) { return []rune(text), nil }, BOS: -1, Prefix: 0, Context: 1 << 10}
	for _, t := range e.List {
		if _, _, err := e.Source.Items(t, encoder, tasks.Options{}); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}
