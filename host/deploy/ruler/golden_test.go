package ruler

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is testdata/ruler.json: what RULER's scripts made of the inputs in it. A token is
// a word between white space.
type golden struct {
	Words   map[string][]string
	English []string `json:"english_words"`
	Essay   string
	QA      struct{ Squad, HotpotQA json.RawMessage }
	Metric  []struct {
		Predictions, Cleaned []string
		References           [][]string
		All                  float64 `json:"match_all"`
		Part                 float64 `json:"match_part"`
	}
	Cases []struct {
		Task    string
		Length  int `json:"max_seq_length"`
		Seed    uint32
		New     int `json:"tokens_to_generate"`
		Samples []Sample
	}
}

func readGolden(t testing.TB) (g golden, inputs Inputs) {
	t.Helper()
	content, err := os.ReadFile("testdata/ruler.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &g); err != nil {
		t.Fatal(err)
	}
	inputs.Words = &Words{Nouns: g.Words[nounFile], Adjectives: g.Words[adjectiveFile], Verbs: g.Words[verbFile], English: g.English}
	inputs.Essay = g.Essay
	if inputs.Squad, err = ParseSquad(g.QA.Squad); err != nil {
		t.Fatal(err)
	}
	if inputs.Hotpot, err = ParseHotpot(g.QA.HotpotQA); err != nil {
		t.Fatal(err)
	}
	return g, inputs
}

func countWords(text string) (int, error) { return len(strings.FieldsFunc(text, isSpace)), nil }

// TestGolden: all 13 tasks, whole prompts.
func TestGolden(t *testing.T) {
	g, inputs := readGolden(t)
	if len(g.Cases) != 13 {
		t.Fatalf("the file has %d cases, want 13", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Task, func(t *testing.T) {
			tasks, err := Select([]string{c.Task})
			if err != nil {
				t.Fatal(err)
			}
			if tasks[0].NewTokens != c.New {
				t.Errorf("answers have %d tokens, want %d", tasks[0].NewTokens, c.New)
			}
			gen := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed}
			var got []Sample
			for s, err := range gen.Samples(context.Background(), tasks[0], c.Length, len(c.Samples)) {
				if err != nil {
					t.Fatal(err)
				}
				s.TokenPosition = nil // the golden file has none
				got = append(got, s)
			}
			if diff := cmp.Diff(c.Samples, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestGoldenMetric: RULER's scores, and how it cleans answers.
func TestGoldenMetric(t *testing.T) {
	g, _ := readGolden(t)
	for i, m := range g.Metric {
		var answers []Answer
		for k, p := range m.Predictions {
			answers = append(answers, Answer{Pred: p, Outputs: m.References[k]})
			if got := Clean(p); got != m.Cleaned[k] {
				t.Errorf("case %d: %q becomes %q, want %q", i, p, got, m.Cleaned[k])
			}
		}
		if got := (Task{scored: shareFound}).Score(answers); got != m.All {
			t.Errorf("case %d: match_all is %v, want %v", i, got, m.All)
		}
		if got := (Task{scored: anyFound}).Score(answers); got != m.Part {
			t.Errorf("case %d: match_part is %v, want %v", i, got, m.Part)
		}
	}
}
