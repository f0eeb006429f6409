package tasks_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

const llama32 = "../../model/huggingface/testdata/llama32"

// goldenCase is a run of lm-eval 0.4.13 with the model llama32.
type goldenCase struct {
	Name, Task, Data, Train string
	Shots                   int
	Chat, Multiturn         bool
	Items                   []goldenItem
	Results                 map[string]float64
}

// documents returns the number of rows that were asked: with several filters a row has several
// items.
func (c goldenCase) documents() int {
	seen := map[int]bool{}
	for _, it := range c.Items {
		seen[it.DocID] = true
	}
	return len(seen)
}

type goldenItem struct {
	DocID    int `json:"doc_id"`
	Filter   string
	Target   json.RawMessage
	Filtered *string
	Metrics  map[string]float64
	Requests []struct {
		Context, Continuation string
		ContextIDs            []int32 `json:"context_ids"`
		ContinuationIDs       []int32 `json:"continuation_ids"`
		Loglikelihood         float64
		IsGreedy              bool `json:"is_greedy"`
		Generation            struct {
			Until     []string
			MaxTokens int `json:"max_gen_toks"`
		}
		Response    string
		ContextHash string `json:"context_sha256"`
		ContextTail string `json:"context_tail"`
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	text := testfile.Read(t, path)
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func encoder(t *testing.T) *tasks.Encoder {
	t.Helper()
	tok, err := tokenizer.Open(llama32)
	if err != nil {
		t.Fatal(err)
	}
	const begin = 320
	return &tasks.Encoder{Encode: tok.Encode, BOS: begin, Prefix: begin, EOS: "<|eot_id|>"}
}

func conversation(t *testing.T) *chat.Template {
	t.Helper()
	template, err := chat.OpenTemplate("", llama32, true)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func docs(t *testing.T, task *tasks.Task, path string, examples bool) []tasks.Doc {
	t.Helper()
	if path == "" {
		return nil
	}
	list, err := task.ReadDocs([]string{filepath.Join("testdata", path)}, examples)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// goldenCases returns the cases of tasks with fixed examples, or of those with examples from their
// own data.
func goldenCases(t *testing.T, fixed bool) iter.Seq2[*tasks.Task, goldenCase] {
	var golden struct{ Cases []goldenCase }
	readJSON(t, "testdata/lm_eval.json", &golden)
	return func(yield func(*tasks.Task, goldenCase) bool) {
		found := false
		for _, c := range golden.Cases {
			task, err := tasks.Open(c.Task)
			if err != nil {
				t.Fatal(err)
			}
			if task.FixedExamples != fixed {
				continue
			}
			found = true
			if len(c.Items) == 0 {
				t.Errorf("%s has no items", c.Name)
			}
			if !yield(task, c) {
				return
			}
		}
		if !found {
			t.Errorf("there is no case with fixed = %v", fixed)
		}
	}
}

// TestGolden compares prompts, tokens, metrics and results with lm-eval's.
func TestGolden(t *testing.T) {
	for task, c := range goldenCases(t, false) {
		t.Run(c.Name, func(t *testing.T) { compareCase(t, task, c) })
	}
}

// TestContinuationInChat checks that in a conversation, too, the continuation is lm-eval's
// doc_to_target, which begins with a space.
func TestContinuationInChat(t *testing.T) {
	for task, c := range goldenCases(t, false) {
		if task.Kind != tasks.Continuation {
			continue
		}
		items, err := task.Items(docs(t, task, c.Data, false), nil, encoder(t),
			tasks.Options{Chat: conversation(t)})
		if err != nil {
			t.Fatal(err)
		}
		for i, it := range items {
			want := c.Items[slices.IndexFunc(c.Items,
				func(g goldenItem) bool { return g.DocID == i })].Requests[0].Continuation
			if got := it.Texts[0].Continuation; got != want || !strings.HasPrefix(want, " ") {
				t.Errorf("%s: item %d asks for %q, want %q", c.Name, i, got, want)
			}
		}
		return
	}
	t.Error("no case has a continuation")
}

func compareCase(t *testing.T, task *tasks.Task, c goldenCase) {
	o := tasks.Options{Shots: c.Shots, OneTurn: !c.Multiturn}
	if c.Chat {
		o.Chat = conversation(t)
	}
	items, err := task.Items(docs(t, task, c.Data, false), docs(t, task, c.Train, true), encoder(t), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != c.documents() {
		t.Fatalf("%d items, want %d", len(items), c.documents())
	}
	var values []map[string]float64
	for i := range items {
		values = append(values, compareItem(t, task, &items[i], c.Items))
	}
	results := map[string]float64{}
	for _, m := range task.Aggregate(values) {
		results[m.Name] = m.Value
		if name, filter, _ := strings.Cut(m.Name, ","); m.Error != nil {
			results[name+"_stderr,"+filter] = *m.Error
		}
	}
	for name, want := range c.Results {
		if strings.HasPrefix(name, "perplexity_stderr") { // drawn at random
			continue
		}
		if got, ok := results[name]; !ok || math.Abs(got-want) > 1e-8+1e-7*math.Abs(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// compareItem compares an item with lm-eval's items, one for each filter, and judges lm-eval's
// answer.
func compareItem(
	t *testing.T, task *tasks.Task, it *tasks.Item, all []goldenItem,
) map[string]float64 {
	t.Helper()
	answer := tasks.Answer{}
	var wants []goldenItem
	for _, want := range all {
		if want.DocID == it.Doc {
			wants = append(wants, want)
		}
	}
	if len(wants) == 0 || len(wants[0].Requests) != len(it.Texts) {
		t.Fatalf("item %d has %d requests, lm-eval has %d items", it.Doc, len(it.Texts), len(wants))
	}
	for i, r := range wants[0].Requests {
		if it.Texts[i].Context != r.Context || it.Texts[i].Continuation != r.Continuation {
			t.Fatalf("item %d asks\n%q %q, want\n%q %q", it.Doc, it.Texts[i].Context,
				it.Texts[i].Continuation, r.Context, r.Continuation)
		}
		if task.Kind == tasks.Generation {
			text := tasks.Cut(r.Response, task.UntilTexts(encoder(t)))
			answer.Text = &text
			if !slices.Equal(it.Prompt, r.ContextIDs) || text != r.Response {
				t.Errorf("item %d: the prompt is %v, want %v; the response %q became %q", it.Doc, it.Prompt,
					r.ContextIDs, r.Response, text)
			}
			continue
		}
		if !slices.Equal(it.Scored[i].Context, r.ContextIDs) ||
			!slices.Equal(it.Scored[i].Continuation, r.ContinuationIDs) {
			t.Errorf("item %d, request %d: %v and %v, want %v and %v", it.Doc, i, it.Scored[i].Context,
				it.Scored[i].Continuation, r.ContextIDs, r.ContinuationIDs)
		}
		answer.LogProbs, answer.Greedy = append(answer.LogProbs, r.Loglikelihood),
			append(answer.Greedy, r.IsGreedy)
	}
	values, err := task.Judge(it, &answer)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range wants {
		for name, value := range want.Metrics {
			if got, ok := values[name+","+want.Filter]; !ok || got != value {
				t.Errorf("item %d: %s,%s is %v, want %v", it.Doc, name, want.Filter, got, value)
			}
		}
	}
	return values
}

// TestFixedExamples checks that with examples from a file, the question is as in lm-eval.
func TestFixedExamples(t *testing.T) {
	for task, c := range goldenCases(t, true) {
		o := tasks.Options{Shots: 2}
		if c.Chat {
			o.Chat = conversation(t)
		}
		examples := docs(t, task, "fixed.jsonl", true)
		items, err := task.Items(docs(t, task, c.Data, false), examples, encoder(t), o)
		if err != nil || len(items) != c.documents() {
			t.Fatalf("%s: %d items, want %d, %v", c.Name, len(items), c.documents(), err)
		}
		for i, it := range items {
			r := c.Items[slices.IndexFunc(c.Items,
				func(g goldenItem) bool { return g.DocID == i })].Requests[0]
			if got := it.Texts[0].Context; !strings.HasSuffix(got, r.ContextTail) ||
				strings.Count(got, "How many birds are there?") != 1 {
				t.Errorf("%s: item %d ends with\n%q, want\n%q", c.Name, i, got, r.ContextTail)
			}
		}
		compareWhole(t, task, c, o)
	}
}

// compareWhole compares hashes of whole prompts if lm-eval's examples are available:
// CAGE_GSM8K_EXAMPLES names a directory with TASK.jsonl of its YAML files, which are not copied
// here.
func compareWhole(t *testing.T, task *tasks.Task, c goldenCase, o tasks.Options) {
	folder := os.Getenv("CAGE_GSM8K_EXAMPLES")
	if folder == "" {
		return
	}
	examples, err := task.ReadDocs([]string{filepath.Join(folder, task.Name+".jsonl")}, true)
	if err != nil {
		t.Fatal(err)
	}
	o.Shots = 8
	items, err := task.Items(docs(t, task, c.Data, false), examples, encoder(t), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range items {
		sum := sha256.Sum256([]byte(it.Texts[0].Context))
		r := c.Items[slices.IndexFunc(c.Items,
			func(g goldenItem) bool { return g.DocID == i })].Requests[0]
		if hex.EncodeToString(sum[:]) != r.ContextHash {
			t.Errorf("%s: the prompt of item %d is another than lm-eval's:\n%s", c.Name, i,
				it.Texts[0].Context)
		}
	}
}
