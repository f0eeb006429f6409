// Package ruler implements the RULER benchmark (Hsieh et al., 2024, arXiv:2404.06654): 13 tasks
// that ask for information in a text of any length. It makes the prompts and summarizes the scores
// of the answers. For the same inputs, the prompts are identical, character by character, to those
// of RULER's scripts (github.com/NVIDIA/RULER at c3f5e3b4).
//
// The package contains neither tokenizers nor models: the caller counts the tokens of texts.
// Package tasks asks the questions, and stores and judges the answers.
package ruler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/lists"
)

// Task is one of RULER's tasks.
type Task struct {
	Name string
	// NewTokens is the maximum number of tokens in an answer.
	NewTokens int

	// start determines how much text fits, and returns a function that draws the samples in turn.
	start  func(s *session) (next, error)
	needs  []need
	metric string // "" means [tasks.Contained]
}

// next draws the sample with an index.
type next = func(index int) (Sample, error)

// At describes the task at a length in tokens for package tasks.
func (t Task) At(length int) *tasks.Task {
	return &tasks.Task{Name: fmt.Sprintf("ruler_%d_%s", length, t.Name), Kind: tasks.Generation,
		MaxTokens: t.NewTokens, Metrics: []string{cmp.Or(t.metric, tasks.Contained)}}
}

// Tasks returns all tasks, in RULER's order (scripts/synthetic.yaml). The numbers of tokens are
// those in scripts/data/synthetic/constants.py.
func Tasks() []Task {
	return []Task{
		niah{noise, words, numbers, 1, 1, 1}.task("niah_single_1"),
		niah{essay, words, numbers, 1, 1, 1}.task("niah_single_2", needEssay),
		niah{essay, words, uuids, 1, 1, 1}.task("niah_single_3", needEssay),
		niah{essay, words, numbers, 4, 1, 1}.task("niah_multikey_1", needEssay),
		niah{needles, words, numbers, 1, 1, 1}.task("niah_multikey_2"),
		niah{needles, uuids, uuids, 1, 1, 1}.task("niah_multikey_3"),
		niah{essay, words, numbers, 1, 4, 1}.task("niah_multivalue", needEssay),
		niah{essay, words, numbers, 1, 1, 4}.task("niah_multiquery", needEssay),
		{Name: "vt", NewTokens: 30, start: tracking},
		{Name: "cwe", NewTokens: 120, start: commonWords, needs: []need{needWords, needEnglish}},
		{Name: "fwe", NewTokens: 50, start: frequentWords},
		{Name: "qa_1", NewTokens: 32, needs: []need{needSquad}, metric: tasks.ContainedAny,
			start: func(s *session) (next, error) { return questions(s, s.Squad) }},
		{Name: "qa_2", NewTokens: 32, needs: []need{needHotpot}, metric: tasks.ContainedAny,
			start: func(s *session) (next, error) { return questions(s, s.Hotpot) }},
	}
}

// Select returns the named tasks, or all tasks if names is empty, in RULER's order.
func Select(names []string) ([]Task, error) {
	all := Tasks()
	if len(names) == 0 {
		return all, nil
	}
	known := lists.Map(all, func(t Task) string { return t.Name })
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no task %q: want %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(t Task) bool { return !slices.Contains(names, t.Name) }), nil
}
