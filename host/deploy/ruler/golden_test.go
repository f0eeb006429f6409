package ruler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// golden is the content of testdata/ruler.json: inputs, and what RULER's scripts made of them. A
// token is a word between white space.
type golden struct {
	Words   map[string][]string
	English []string `json:"english_words"`
	Essay   string
	QA      struct{ Squad, HotpotQA json.RawMessage }
	Metric  []struct {
		Predictions []string
		References  [][]string
		All         float64 `json:"match_all"`
		Part        float64 `json:"match_part"`
	}
	Cases []struct {
		Task    string
		Length  int `json:"max_seq_length"`
		Seed    uint32
		New     int `json:"tokens_to_generate"`
		Samples []stored
	}
}

// stored is a sample in RULER's storage format.
type stored struct {
	Index        int // of the sample; in the needle tasks: the character where the first value begins
	Input        string
	Outputs      []string
	Length       int    // tokens of the prompt and the longest answer
	AnswerPrefix string `json:"answer_prefix"`
}

func store(t Task, samples []Sample) (list []stored) {
	for i, s := range samples {
		if strings.HasPrefix(t.Name, "niah") {
			before, _, _ := strings.Cut(s.Input, s.Outputs[0])
			i = utf8.RuneCountInString(before)
		}
		words, _ := countWords(s.Prompt())
		list = append(list, stored{i, s.Input, s.Outputs, words + t.NewTokens, s.AnswerPrefix})
	}
	return list
}

func readGolden(t testing.TB) (g golden, inputs Inputs) {
	t.Helper()
	testfile.ReadJSON(t, "testdata/ruler.json", &g)
	inputs.Words = &Words{Nouns: g.Words[nounFile], Adjectives: g.Words[adjectiveFile],
		Verbs: g.Words[verbFile], English: g.English}
	inputs.Essay = g.Essay
	var err error
	if inputs.Squad, err = ParseSquad(g.QA.Squad); err != nil {
		t.Fatal(err)
	}
	if inputs.Hotpot, err = ParseHotpot(g.QA.HotpotQA); err != nil {
		t.Fatal(err)
	}
	return g, inputs
}

func selected(t testing.TB, names []string) []Task {
	t.Helper()
	list, err := Select(names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func countWords(text string) (int, error) { return len(strings.FieldsFunc(text, isSpace)), nil }

// TestGolden compares whole prompts of all 13 tasks with RULER's.
func TestGolden(t *testing.T) {
	g, inputs := readGolden(t)
	if len(g.Cases) != 13 {
		t.Fatalf("the file has %d cases, want 13", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Task, func(t *testing.T) {
			list := selected(t, []string{c.Task})
			if list[0].NewTokens != c.New {
				t.Errorf("answers have %d tokens, want %d", list[0].NewTokens, c.New)
			}
			gen := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed}
			got, err := gen.Samples(context.Background(), list[0], c.Length, len(c.Samples), len(c.Samples))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Samples, store(list[0], got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func judged(
	t *testing.T, task Task, length int, answers []string, targets [][]string,
) *tasks.Result {
	t.Helper()
	var items []tasks.Item
	var texts []tasks.Answer
	for i := range answers {
		items, texts = append(items, tasks.Item{Targets: targets[i]}),
			append(texts, tasks.Answer{Text: &answers[i]})
	}
	r, err := tasks.Judge(task.At(length), items, texts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGoldenMetric compares scores with RULER's, also for answers that it cleans first.
func TestGoldenMetric(t *testing.T) {
	g, _ := readGolden(t)
	for i, m := range g.Metric {
		for metric, want := range map[string]float64{tasks.Contained: m.All, tasks.ContainedAny: m.Part} {
			r := judged(t, Task{metric: metric}, 1, m.Predictions, m.References)
			if got := percent(r.Metrics[0].Value); got != want {
				t.Errorf("case %d: %s is %v, want %v", i, metric, got, want)
			}
		}
	}
}

// TestPerfectAnswers checks that right answers, in other case and among other words, score 100 in
// every task, and empty answers 0.
func TestPerfectAnswers(t *testing.T) {
	testlevel.Long(t, "writes prompts of all tasks")
	_, inputs := readGolden(t)
	g := &Generator{Inputs: inputs, Count: countWords, Seed: DefaultSeed}
	lengths := []int{1500, 2000}
	for want, effective := range map[float64]int{0: 0, 100: 2000} {
		var results []*tasks.Result
		for _, length := range lengths {
			for _, task := range Tasks() {
				samples, err := g.Samples(t.Context(), task, length, 2, 2)
				if err != nil {
					t.Fatal(err)
				}
				var answers []string
				var targets [][]string
				for _, s := range samples {
					answer := ""
					if want > 0 {
						answer = " Well: " + strings.ToUpper(strings.Join(s.Outputs, ", ")) + "."
					}
					answers, targets = append(answers, answer), append(targets, s.Outputs)
				}
				results = append(results, judged(t, task, length, answers, targets))
			}
		}
		r := NewReport(Tasks(), lengths, results)
		for _, l := range r.Lengths {
			for _, task := range Tasks() {
				if got := l.Scores[task.Name]; got != want {
					t.Errorf("%s at %d has %v, want %v", task.Name, l.Length, got, want)
				}
			}
		}
		if len(r.Lengths) != 2 || !near(r.Average, want) || r.Effective != effective ||
			len(r.Notes) != 0 {
			t.Errorf("%d lengths with the average %v, the effective length %d and the notes %v",
				len(r.Lengths), r.Average, r.Effective, r.Notes)
		}
	}
}

// longCase is a case of testdata/long.json: what RULER's scripts make of the inputs of ruler.json
// at other lengths, with other seeds, and with a chat template.
type longCase struct {
	Task          string
	Length        int `json:"max_seq_length"`
	Seed          uint32
	Before, After string
	Samples       []digest
}

type digest struct {
	Index   int
	Length  int
	Outputs []string
	SHA256  string // of the input and the prefix of the answer, with a zero between
}

// TestLong compares whole prompts of all tasks below, at and above the length from which RULER's
// scripts take larger steps. testdata/long.py made the file.
func TestLong(t *testing.T) {
	testlevel.Long(t, "writes 52 sets of long prompts")
	_, inputs := readGolden(t)
	var file struct{ Cases []longCase }
	testfile.ReadJSON(t, "testdata/long.json", &file)
	if len(file.Cases) != 52 {
		t.Fatalf("the file has %d cases, want 52", len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%s at %d", c.Task, c.Length), func(t *testing.T) {
			list := selected(t, []string{c.Task})
			g := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed, Before: c.Before,
				After: c.After}
			var got []digest
			n := len(c.Samples)
			samples, err := g.Samples(context.Background(), list[0], c.Length, n, n)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range store(list[0], samples) {
				sum := sha256.Sum256([]byte(s.Input + "\x00" + s.AnswerPrefix))
				got = append(got, digest{s.Index, s.Length, s.Outputs, fmt.Sprintf("%x", sum)})
			}
			if diff := cmp.Diff(c.Samples, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
