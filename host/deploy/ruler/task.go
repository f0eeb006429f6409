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

	kind   kind
	needs  []need
	metric string
}

// At describes the task at a length in tokens for package tasks.
func (t Task) At(length int) *tasks.Task {
	return &tasks.Task{Name: fmt.Sprintf("ruler_%d_%s", length, t.Name), Kind: tasks.Generation,
		MaxTokens: t.NewTokens, Metrics: []string{t.metric}}
}

// kind makes the prompts of one or several tasks.
type kind interface {
	// start determines how much text fits, and returns a function that draws the samples in turn.
	start(s *session) (func(index int) (Sample, error), error)
}

// Tasks returns all tasks, in RULER's order (scripts/synthetic.yaml). The numbers of tokens are
// those in scripts/data/synthetic/constants.py.
func Tasks() []Task {
	list := []Task{
		{Name: "niah_single_1", kind: niah{noise, words, numbers, 1, 1, 1}},
		{Name: "niah_single_2", kind: niah{essay, words, numbers, 1, 1, 1}},
		{Name: "niah_single_3", kind: niah{essay, words, uuids, 1, 1, 1}},
		{Name: "niah_multikey_1", kind: niah{essay, words, numbers, 4, 1, 1}},
		{Name: "niah_multikey_2", kind: niah{needles, words, numbers, 1, 1, 1}},
		{Name: "niah_multikey_3", kind: niah{needles, uuids, uuids, 1, 1, 1}},
		{Name: "niah_multivalue", kind: niah{essay, words, numbers, 1, 4, 1}},
		{Name: "niah_multiquery", kind: niah{essay, words, numbers, 1, 1, 4}},
		{Name: "vt", NewTokens: 30, kind: tracking{}},
		{Name: "cwe", NewTokens: 120, kind: commonWords{}, needs: []need{needWords, needEnglish}},
		{Name: "fwe", NewTokens: 50, kind: frequentWords{}},
		{Name: "qa_1", NewTokens: 32, needs: []need{needSquad}, metric: tasks.ContainedAny,
			kind: questions{func(i Inputs) *Documents { return i.Squad }}},
		{Name: "qa_2", NewTokens: 32, needs: []need{needHotpot}, metric: tasks.ContainedAny,
			kind: questions{func(i Inputs) *Documents { return i.Hotpot }}},
	}
	for i := range list {
		t := &list[i]
		if n, ok := t.kind.(niah); ok {
			t.NewTokens = 128
			if n.haystack == essay {
				t.needs = append(t.needs, needEssay)
			}
			if n.keyKind == words {
				t.needs = append(t.needs, needWords)
			}
		}
		t.metric = cmp.Or(t.metric, tasks.Contained)
	}
	return list
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
