package evaluation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Tasks asks the questions of evaluation tasks, as `cage eval --tasks` does.
type Tasks struct {
	List   []*tasks.Task
	Names  []string // as given in the study: names of tasks, or paths of files
	Source tasks.Source
	Batch  int // number of texts generated at once
	// MaxTokens limits the length of a generated answer; 0 means the task's own limit.
	MaxTokens     int
	Chat, OneTurn bool // use the model's chat template; put examples and question into one message
}

var _ Evaluation = (*Tasks)(nil)

// ID implements [Evaluation].
func (e *Tasks) ID() string {
	var names, hashes []string
	for _, t := range e.List {
		names, hashes = append(names, t.Name), append(hashes, t.Hash())
	}
	return identify(strings.Join(names, "-"), []any{hashes, e.Source.Shots, e.Source.Limit, e.Batch, e.MaxTokens, e.Chat, e.OneTurn})
}

// Metrics implements [Evaluation]: "TASK.METRIC", followed by a comma and the filter if the task has filters.
func (e *Tasks) Metrics() (list []Metric) {
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			list = append(list, Metric{metricName(t, name), tasks.HigherIsBetter(name)})
		}
	}
	return list
}

func metricName(t *tasks.Task, name string) string {
	return t.Name + "." + strings.TrimSuffix(name, ","+tasks.NoFilter)
}

// Arguments implements [Evaluation].
func (e *Tasks) Arguments(run, out string) []string {
	args := []string{"eval", run, "--data", e.Source.Data, "--batch", strconv.Itoa(e.Batch), "--out", out, "--json", "--lifeline"}
	for _, name := range e.Names {
		args = append(args, "--tasks", listed(name))
	}
	if e.Source.Limit > 0 {
		args = append(args, "--limit", strconv.Itoa(e.Source.Limit))
	}
	if e.MaxTokens > 0 {
		args = append(args, "--max-tokens", strconv.Itoa(e.MaxTokens))
	}
	if e.Source.Shots >= 0 {
		args = append(args, "--fewshot", strconv.Itoa(e.Source.Shots))
	}
	if e.Source.Examples != "" {
		args = append(args, "--examples", e.Source.Examples)
	}
	if e.Chat {
		args = append(args, "--chat")
	}
	if e.OneTurn {
		args = append(args, "--one-turn")
	}
	return args
}

// listed writes a text as the one element of a list, as flags take them.
func listed(text string) string {
	if !strings.ContainsAny(text, "\",\n") {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
}

// Lock implements [Evaluation].
func (e *Tasks) Lock(out vfs.Path) vfs.Path { return out.Join(vfs.LockFile) }

// Read implements [Evaluation].
func (e *Tasks) Read(out vfs.Path) (map[string]float64, error) {
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

// Rows implements [Evaluation].
func (e *Tasks) Rows() (string, error) {
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

// Check implements [Evaluation].
func (e *Tasks) Check() error {
	encoder := &tasks.Encoder{Encode: func(text string) ([]int32, error) { return []rune(text), nil }, BOS: -1, Prefix: 0, Context: 1 << 10}
	for _, t := range e.List {
		if _, _, err := e.Source.Items(t, encoder, tasks.Options{}); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}
