package tasks

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestFilters checks that the results of filters and their scores are as in lm-eval.
func TestFilters(t *testing.T) {
	var golden struct {
		Cases []struct {
			Response, Filter, Extracted, Target string
			Score                               float64
		}
	}
	testfile.ReadJSON(t, "testdata/gsm8k_extract.json", &golden)
	if len(golden.Cases) == 0 {
		t.Fatalf("%d cases", len(golden.Cases))
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
		counts := indicator(task.comparable(got) == task.comparable(c.Target))
		if got != c.Extracted || counts != c.Score {
			t.Errorf("%s finds %q in %q, which counts %v against %q; want %q, %v", c.Filter, got, c.Response,
				counts, c.Target, c.Extracted, c.Score)
		}
	}
}

// TestChoices checks that the model's choice is the one that lm-eval's process_results (0.4.13)
// finds for the same numbers. acc_norm divides by characters: by bytes, choices in other alphabets
// would seem likelier than they are. Of equal choices the first counts: with the last, a model that
// cannot distinguish choices would get other values than in lm-eval.
func TestChoices(t *testing.T) {
	task := &Task{Kind: Choices, Metrics: []string{Acc, AccNorm}}
	for _, c := range []struct {
		choices   []string
		logProbs  []float64
		gold      int
		acc, norm float64
	}{
		{[]string{"Üçgenöğ", "triangles"}, []float64{-8, -9}, 0, 1, 0},
		{[]string{"Üçgenöğ", "triangles"}, []float64{-8, -9}, 1, 0, 1},
		{[]string{"日本語", "Japan"}, []float64{-6, -8}, 1, 0, 1},
		{[]string{"yes", "yes"}, []float64{-3, -3}, 0, 1, 1},
		{[]string{"ab", "cd", "ef"}, []float64{-5, -4, -4}, 1, 1, 1},
		{[]string{"ab", "cd", "ef"}, []float64{-5, -4, -4}, 2, 0, 0},
		{[]string{"ab", "abcd"}, []float64{-2, -4}, 0, 1, 1},
		{[]string{"ab", "abcdef"}, []float64{-4, -11}, 1, 0, 1}, // −2 and −1.83 per character
	} {
		got, err := task.Judge(&Item{Choices: c.choices, Gold: c.gold}, &Answer{LogProbs: c.logProbs})
		if err != nil || got[Acc+","+NoFilter] != c.acc || got[AccNorm+","+NoFilter] != c.norm {
			t.Errorf("%q, %v, gold %d: %v, want acc %v and acc_norm %v, %v", c.choices, c.logProbs, c.gold,
				got, c.acc, c.norm, err)
		}
	}
}

// TestDefinitions checks that all tasks have a short description, a paper and the score of
// guessing.
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
		if task.Name != name || !strings.Contains(task.Paper, "arXiv:") || task.Kind == Choices &&
			!(task.Chance > 0 && task.Chance < 1) {
			t.Errorf("%s: name %q, paper %q, chance %v", name, task.Name, task.Paper, task.Chance)
		}
	}
}

// TestLower checks letters whose lower case depends on Python's rules.
func TestLower(t *testing.T) {
	for text, want := range map[string]string{"ΑΣ ΑΣΑ": "ας ασα", "İ": "i̇", "ẞ": "ß",
		"Straße": "straße"} {
		if got := lower(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestContained checks the share of the targets in a text, in upper or lower case.
func TestContained(t *testing.T) {
	task := &Task{Kind: Generation, Metrics: []string{Contained, ContainedAny}}
	for text, want := range map[string][2]float64{"": {0, 0}, "ONE,three": {0.5, 1},
		"two\x00lines, one": {1, 1}} {
		got, err := task.Judge(&Item{Targets: []string{"one", "Two\nLines"}}, &Answer{Text: &text})
		if err != nil || got["contained,none"] != want[0] || got["contained_any,none"] != want[1] {
			t.Errorf("%q has %v, %v; want %v", text, got, err, want)
		}
	}
}
