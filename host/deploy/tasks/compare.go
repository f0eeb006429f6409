package tasks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// Comparison holds two models' values of a metric for the same items of a task.
type Comparison struct {
	Task, Metric  string
	First, Second []float64 // by item; for perplexity: log-probabilities
}

// Compare returns the values of all metrics for the tasks that are in both directories, which were
// written by [WriteResults], and the names of the tasks that are in one of them. Tasks that score
// whole texts are omitted, because their metrics are not means over texts.
func Compare(first, second vfs.Path) (list []Comparison, single []string, err error) {
	inFirst, errA := finished(first)
	inSecond, errB := finished(second)
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, err
	}
	for _, task := range inSecond {
		if !slices.Contains(inFirst, task) {
			single = append(single, task)
		}
	}
	for _, task := range inFirst {
		if !slices.Contains(inSecond, task) {
			single = append(single, task)
			continue
		}
		a, errA := ReadSamples(samplesFile(first, task))
		b, errB := ReadSamples(samplesFile(second, task))
		if err := errors.Join(errA, errB); err != nil {
			return nil, nil, err
		}
		if len(a) != len(b) {
			return nil, nil, fmt.Errorf("%s: one model answered %d items, the other %d",
				task, len(a), len(b))
		}
		for i := range a { // examples and templates may differ, but the row must not
			x, y := &a[i].Item, &b[i].Item
			if x.Doc != y.Doc || x.Gold != y.Gold || x.Target != y.Target ||
				!slices.Equal(x.Choices, y.Choices) || !slices.Equal(x.Targets, y.Targets) {
				return nil, nil, fmt.Errorf("%s: item %d is a different question for each model", task, i)
			}
		}
		for _, metric := range slices.Sorted(maps.Keys(a[0].Values)) {
			_, both := b[0].Values[metric]
			if !both || !strings.Contains(metric, ",") { // without a comma: a count of a whole text
				continue
			}
			c := Comparison{Task: task, Metric: metric}
			for i := range a {
				c.First = append(c.First, a[i].Values[metric])
				c.Second = append(c.Second, b[i].Values[metric])
			}
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s and %s have no common task with items to compare (a task that "+
			"is not finished has none: repeat the command)", first, second)
	}
	return list, single, nil
}

// ItemValues returns the values of a metric for the items of a task in a directory of answers, in
// order. There are none for tasks that score whole texts.
func ItemValues(dir vfs.Path, task, metric string) (values []float64, err error) {
	samples, err := ReadSamples(samplesFile(dir, task))
	for _, s := range samples {
		if v, ok := s.Values[metric]; ok {
			values = append(values, v)
		}
	}
	if len(values) < len(samples) {
		return nil, err
	}
	return values, err
}

// finished lists the tasks whose samples are in a directory, sorted.
func finished(dir vfs.Path) (list []string, err error) {
	entries, err := dir.ReadDir()
	for _, e := range entries {
		if task, ok := strings.CutPrefix(e.Name(), samplesPrefix); ok {
			list = append(list, strings.TrimSuffix(task, ".jsonl"))
		}
	}
	return list, err
}
