package tasks

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestFilters: what filters find, and whether it counts, is as in lm-eval.
func TestFilters(t *testing.T) {
	text, err := os.ReadFile("testdata/gsm8k_extract.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Response, Filter, Extracted, Target string
			Score                               float64
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) < 50 {
		t.Fatalf("%d cases, %v", len(golden.Cases), err)
	}
	filters, of := map[string]*Filter{}, map[string]*Task{}
	for _, name := range Names() {
		task, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range task.Filters {
			filters[name+" "+f.Name], of[name+" "+f.Name] = &task.Filters[i], task
		}
	}
	for _, c := range golden.Cases {
		f := filters[c.Filter]
		if f == nil {
			t.Fatalf("there is no filter %q", c.Filter)
		}
		got, task := f.find(c.Response), of[c.Filter]
		if got != c.Extracted || task.exactMatch(got, c.Target) != c.Score {
			t.Errorf("%s finds %q in %q, which counts %v against %q; want %q, %v", c.Filter, got, c.Response, task.exactMatch(got, c.Target), c.Target, c.Extracted, c.Score)
		}
	}
}

// TestDefinitions: all tasks are described briefly, with their papers and what guessing gives.
func TestDefinitions(t *testing.T) {
	if len(Names()) < 10 {
		t.Errorf("there are %d tasks", len(Names()))
	}
	for _, name := range Names() {
		task, err := Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := definitions.ReadFile("definitions/" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 25 {
			t.Errorf("%s has %d lines: want 25 at most", name, lines)
		}
		if task.Name != name || !strings.Contains(task.Paper, "arXiv:") || task.Kind == Choices && !(task.Chance > 0 && task.Chance < 1) {
			t.Errorf("%s: name %q, paper %q, chance %v", name, task.Name, task.Paper, task.Chance)
		}
	}
}
