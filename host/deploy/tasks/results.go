package tasks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// Sample is an item with its answer and metrics.
type Sample struct {
	Item
	Answer
	Values map[string]float64 `json:"metrics"` // by metric and filter
}

// Result is the result of a task.
type Result struct {
	Task    *Task
	Shots   int
	Samples []Sample
	Metrics []Metric
	All     int // number of questions of the task, some of which may not have been asked; 0: unknown
}

// Judge judges the answers to all items of a task.
func Judge(t *Task, items []Item, answers []Answer) (*Result, error) {
	r := &Result{Task: t}
	if len(items) > 0 {
		r.Shots = items[0].Shots
	}
	var all []map[string]float64
	for i := range items {
		values, err := t.Judge(&items[i], &answers[i])
		if err != nil {
			return nil, err
		}
		r.Samples, all = append(r.Samples, Sample{items[i], answers[i], values}), append(all, values)
	}
	r.Metrics = t.Aggregate(all)
	return r, nil
}

// Results holds the results of several tasks: values by section and task. Sections, names and
// values are as in lm-eval's results, so that programs that read those can read these as well. Only
// the section "config" differs: it has the settings of the model.
type Results map[string]map[string]any

// Summarize combines results; config describes the model and its settings.
func Summarize(list []*Result, config map[string]string) Results {
	out := Results{"results": {}, "config": {}}
	for key, value := range config {
		out["config"][key] = value
	}
	for _, r := range list {
		name, asked := r.Task.Name, len(r.Samples)
		values, higher := map[string]any{"alias": name}, map[string]bool{}
		for _, m := range r.Metrics {
			metric, filter, _ := strings.Cut(m.Name, ",")
			values[m.Name] = finite(m.Value)
			values[metric+"_stderr,"+filter] = "N/A"
			if m.Error != nil {
				values[metric+"_stderr,"+filter] = finite(*m.Error)
			}
			higher[metric] = HigherIsBetter(metric)
		}
		var version any = "N/A" // a number if it is one
		if v, err := strconv.ParseFloat(r.Task.Version, 64); err == nil {
			version = v
		}
		for section, value := range map[string]any{
			"results": values, "n-shot": r.Shots, "versions": version, "higher_is_better": higher,
			"n-samples":      map[string]int{"original": max(r.All, asked), "effective": asked},
			"group_subtasks": []string{},
			"configs": map[string]any{"task": name, "num_fewshot": r.Shots,
				"metadata": map[string]any{"version": version}},
		} {
			if out[section] == nil {
				out[section] = map[string]any{}
			}
			out[section][name] = value
		}
	}
	return out
}

// finite returns a number that JSON can represent: NaN and ±Inf become strings.
func finite(v float64) any {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	return v
}

// WriteSamples writes the samples of a task, one per line.
func WriteSamples(path vfs.Path, samples []Sample) error {
	var text bytes.Buffer
	for _, s := range samples {
		if err := jsonlines.Encode(&text, s); err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(path, text.Bytes())
}

// ReadSamples reads a file written by [WriteSamples].
func ReadSamples(path vfs.Path) (list []Sample, err error) {
	for s, err := range jsonlines.Read[Sample](path) {
		if err != nil {
			return nil, err
		}
		list = append(list, s.Value)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no samples", path)
	}
	return list, nil
}

const samplesPrefix = "samples_"

func samplesFile(dir vfs.Path, task string) vfs.Path {
	return dir.Join(samplesPrefix + task + ".jsonl")
}

// Table returns results as a table with a row per metric.
func Table(list []*Result) [][]string {
	rows := [][]string{
		{"task", "version", "shots", "items", "metric", "filter", "value", "± error", "chance"}}
	for _, r := range list {
		for _, m := range r.Metrics {
			metric, filter, _ := strings.Cut(m.Name, ",")
			row := []string{r.Task.Name, cmp.Or(r.Task.Version, "–"), fmt.Sprint(r.Shots),
				fmt.Sprint(len(r.Samples)), metric, filter, fmt.Sprintf("%.4f", m.Value), "–", "–"}
			if m.Error != nil {
				row[7] = fmt.Sprintf("%.4f", *m.Error)
			}
			if r.Task.Chance > 0 && metric != Perplexity {
				row[8] = fmt.Sprint(r.Task.Chance)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// AnswersDir returns the subdirectory of an evaluation's directory that holds the answers.
func AnswersDir(dir vfs.Path) vfs.Path { return dir.Join("answers") }

// AnswersFile returns the path of the answers to a task.
func AnswersFile(dir vfs.Path, task string) vfs.Path {
	return AnswersDir(dir).Join(task + ".jsonl")
}

func resultsFile(dir vfs.Path) vfs.Path { return dir.Join("results.json") }

// CheckModel returns an error if a directory has answers of another model to any task, because the
// results of both would be mixed. The model is given as the setting "model" of [Questions].
func CheckModel(dir vfs.Path, model string) error {
	entries, err := AnswersDir(dir).ReadDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".jsonl" {
			continue
		}
		path := AnswersDir(dir).Join(e.Name())
		other := "" // if the first line is incomplete
		for first, err := range jsonlines.Read[header](path) {
			if _, damaged := errors.AsType[*jsonlines.Error](err); err != nil && !damaged {
				return err
			}
			if err == nil {
				other = first.Value.Settings["model"]
			}
			break
		}
		if other != "" && other != model {
			return fmt.Errorf("%s has answers of another model (%s, not %s): give another --out",
				path, other, model)
		}
	}
	return nil
}

// CheckOurs returns an error if writing the samples or results of a task would replace a file that
// cage did not write. Samples are cage's if the answers that they are made from exist.
func CheckOurs(dir vfs.Path, task string) error {
	answered, err := AnswersFile(dir, task).Exists()
	if err != nil {
		return err
	}
	_, err = readResults(dir)
	ours := func(io.Reader) bool { return answered }
	return errors.Join(err, atomicfile.CheckOurs(samplesFile(dir, task), ours))
}

// WriteResults writes the samples of tasks, and merges results into results.json, keeping the
// results of other tasks.
func WriteResults(dir vfs.Path, list []*Result, results Results) error {
	for _, r := range list {
		if err := WriteSamples(samplesFile(dir, r.Task.Name), r.Samples); err != nil {
			return err
		}
	}
	all, err := readResults(dir)
	if err != nil {
		return err
	}
	for section, values := range results {
		if section == "config" || all[section] == nil {
			all[section] = map[string]any{}
		}
		maps.Copy(all[section], values)
	}
	return atomicfile.WriteJSON(resultsFile(dir), all)
}

// readResults reads the results in a directory; they are empty if there are none. It is an error if
// the file was not written by WriteResults.
func readResults(dir vfs.Path) (Results, error) {
	out := Results{}
	err := atomicfile.CheckOurs(resultsFile(dir), func(text io.Reader) bool {
		err := json.NewDecoder(text).Decode(&out)
		return err == nil && out["results"] != nil && out["config"] != nil
	})
	return out, err
}
