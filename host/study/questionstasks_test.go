package study

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/vfs"
)

// asking returns an evaluation of tasks that come with cage, modified by change.
func asking(t *testing.T, change func(*taskQuestions), names ...string) *taskQuestions {
	t.Helper()
	e := &taskQuestions{Names: names, Batch: 8, Source: tasks.Source{Data: t.TempDir(), Shots: -1}}
	for _, name := range names {
		task, err := tasks.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		e.List = append(e.List, task)
	}
	if change != nil {
		change(e)
	}
	return e
}

// TestID checks that the ID depends on what a model is asked, but not on the directory of the rows.
func TestID(t *testing.T) {
	seen := map[string]string{}
	for what, e := range map[string]*taskQuestions{
		"as it is":         asking(t, nil, "piqa"),
		"another task":     asking(t, nil, "arc_easy"),
		"two tasks":        asking(t, nil, "piqa", "arc_easy"),
		"examples":         asking(t, func(e *taskQuestions) { e.Source.Shots = 0 }, "piqa"),
		"fewer questions":  asking(t, func(e *taskQuestions) { e.Source.Limit = 3 }, "piqa"),
		"other batches":    asking(t, func(e *taskQuestions) { e.Batch = 4 }, "piqa"),
		"shorter answers":  asking(t, func(e *taskQuestions) { e.MaxTokens = 4 }, "piqa"),
		"conversations":    asking(t, func(e *taskQuestions) { e.Chat = true }, "piqa"),
		"in one message":   asking(t, func(e *taskQuestions) { e.Chat, e.OneTurn = true, true }, "piqa"),
		"many, many tasks": asking(t, nil, slices.Repeat([]string{"gsm8k_cot_zeroshot"}, 30)...),
	} {
		id := e.ID()
		if other := seen[id]; other != "" {
			t.Errorf("%s and %s have the ID %s", what, other, id)
		}
		if len(id) > 100 || strings.ContainsAny(id, `/\ `) {
			t.Errorf("%s: %q is not fit for a file name", what, id)
		}
		seen[id] = what
	}
	if a, b := asking(t, nil, "piqa").ID(), asking(t, nil, "piqa").ID(); a != b {
		t.Errorf("rows elsewhere make another ID: %s and %s", a, b)
	}
}

// TestRead checks that values are found by the names of metrics, including values that are not
// numbers in JSON, and that a missing one is an error.
func TestRead(t *testing.T) {
	e := asking(t, nil, "lambada_openai", "gsm8k")
	const numbers = `{"results": {"lambada_openai": {"perplexity,none": "+Inf", "acc,none": 0.25}, "gsm8k": {"exact_match,strict-match": 0.5, "exact_match,flexible-extract": 1}}}`
	for text, want := range map[string]string{
		numbers: "",
		strings.Replace(numbers, `"acc,none": 0.25`, `"acc,none": "N/A"`,
			1): "no number acc,none of the task lambada_openai",
		strings.Replace(numbers, "gsm8k", "piqa",
			1): "no number exact_match,strict-match of the task gsm8k",
		numbers[:30]: "it ends in the middle",
		"":           "no such file",
	} {
		out := vfs.At(t.TempDir())
		if text != "" {
			if err := os.WriteFile(out.Join("results.json").Name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, err := e.Read(out)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "results.json") {
				t.Errorf("%v, want %s", err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		names := slices.Sorted(maps.Keys(found))
		if !slices.Equal(names,
			[]string{"gsm8k.exact_match,flexible-extract", "gsm8k.exact_match,strict-match",
				"lambada_openai.acc", "lambada_openai.perplexity"}) ||
			found["lambada_openai.perplexity"] < 1e308 || found["lambada_openai.acc"] != 0.25 ||
			found["gsm8k.exact_match,flexible-extract"] != 1 {
			t.Errorf("found %v", found)
		}
		for _, m := range e.Metrics() {
			if _, ok := found[m.Name]; !ok {
				t.Errorf("no %s", m.Name)
			}
		}
	}
}

// TestItems checks that the values of each question are read, and none of metrics that are not
// their means.
func TestItems(t *testing.T) {
	e, out := asking(t, nil, "lambada_openai"), vfs.At(t.TempDir())
	var list []tasks.Sample
	for _, right := range []float64{1, 0, 1} {
		list = append(list, tasks.Sample{Values: map[string]float64{"acc,none": right,
			"perplexity,none": -2}})
	}
	if err := tasks.WriteSamples(out.Join("samples_lambada_openai.jsonl"), list); err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string][]float64{"lambada_openai.acc": {1, 0, 1},
		"lambada_openai.perplexity": nil, "piqa.acc": nil} {
		if got, err := e.Items(out, metric); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", metric, got, err, want)
		}
	}
}

// TestRows checks that the hash depends on all files with questions and examples, and that errors
// describe what is missing or wrong in them.
func TestRows(t *testing.T) {
	e := asking(t, func(e *taskQuestions) { e.Source.Shots = 1 }, "piqa")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(e.Source.Data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const row = `{"goal": "g", "sol1": "a", "sol2": "b", "label": 0}` + "\n"
	if _, err := e.Rows(); err == nil ||
		!strings.Contains(err.Error(), `piqa: `+e.Source.Data+` has no rows of the split "validation"`) {
		t.Errorf("without files: %v", err)
	}
	put("piqa_validation.jsonl", row)
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), `the split "train"`) {
		t.Errorf("without examples: %v", err)
	}
	put("piqa_train.jsonl", strings.Replace(row, `"g"`, `"h"`, 1))
	if err := e.Check(); err == nil ||
		!strings.Contains(err.Error(), "piqa: 1 examples before each question, but only 1 rows") {
		t.Errorf("with too few examples: %v", err)
	}
	put("piqa_train.jsonl", row+row)
	if err := e.Check(); err != nil {
		t.Errorf("complete: %v", err)
	}
	first, err := e.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"piqa_train.jsonl", "piqa_validation.jsonl"} {
		put(name, row+row+row)
		next, err := e.Rows()
		if err != nil || next == first {
			t.Errorf("another %s: %v, %v", name, next, err)
		}
		first = next
	}
	put("piqa_validation.jsonl", `{"goal": "g"}`+"\n")
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), "piqa_validation.jsonl") {
		t.Errorf("without columns: %v", err)
	}
}
