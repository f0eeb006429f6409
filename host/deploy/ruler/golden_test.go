package ruler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
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
	testfile.ReadJSON(t, "testdata/ruler.json", &g)
	inputs.Words = &Words{Nouns: g.Words[nounFile], Adjectives: g.Words[adjectiveFile], Verbs: g.Words[verbFile], English: g.English}
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

func countWords(text string) (int, error) { return len(strings.FieldsFunc(text, isSpace)), nil }

// TestGolden: all 13 tasks, whole prompts.
func TestGolden(t *testing.T) {
	g, inputs := readGolden(t)
	if len(g.Cases) != 13 {
		t.Fatalf("the file has %d cases, want 13", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Task, func(t *testing.T) {
			tasks := selected(t, []string{c.Task})
			if tasks[0].NewTokens != c.New {
				t.Errorf("answers have %d tokens, want %d", tasks[0].NewTokens, c.New)
			}
			gen := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed}
			got, err := gen.Samples(context.Background(), tasks[0], c.Length, len(c.Samples))
			if err != nil {
				t.Fatal(err)
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

// TestOracle: who answers what is wanted, in other letters and among other words, has 100
// in every task, and who answers nothing has 0.
func TestOracle(t *testing.T) {
	testlevel.Long(t, "starts Python")
	_, inputs := readGolden(t)
	g := &Generator{Inputs: inputs, Count: countWords, Seed: DefaultSeed}
	for _, knows := range []bool{true, false} {
		d := At(vfs.At(t.TempDir()))
		p := planned(Tasks(), 2, 2, 1500, 2000)
		wanted := map[string]string{}
		for _, length := range p.Lengths {
			for _, task := range p.Tasks {
				samples, err := g.Samples(t.Context(), task, length, p.Samples)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range samples {
					if knows {
						wanted[s.Prompt()] = " Well: " + strings.ToUpper(strings.Join(s.Outputs, ", ")) + "."
					}
				}
			}
		}
		err := d.Ask(context.Background(), g, p, func(_ context.Context, prompts []string, _ int) (said []string, _ error) {
			for _, p := range prompts {
				said = append(said, wanted[p])
			}
			return said, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r := reported(t, d)
		want, effective := TaskReport{Answers: 2, Empty: 2}, 0
		if knows {
			want, effective = TaskReport{Score: 100, Answers: 2}, 2000
		}
		for _, l := range r.Lengths {
			for _, task := range Tasks() {
				if got := l.Scores[task.Name]; got != want {
					t.Errorf("%s at %d has %+v, want %+v", task.Name, l.Length, got, want)
				}
			}
		}
		if len(r.Lengths) != 2 || r.Average != want.Score || r.Effective != effective {
			t.Errorf("%d lengths with the average %v and the effective length %d", len(r.Lengths), r.Average, r.Effective)
		}
	}
}

// longCase is a case of testdata/long.json: what RULER's scripts make of the inputs of
// ruler.json at other lengths, with other seeds, and with a template of conversations.
type longCase struct {
	Task          string
	Length        int `json:"max_seq_length"`
	Seed          uint32
	Before, After string
	Samples       []digest
}

// digest stands for a sample.
type digest struct {
	Index   int
	Length  int
	Outputs []string
	SHA256  string // of the input and the prefix of the answer, with a zero between
}

// TestLong: whole prompts of all tasks below, at and above the length from which RULER's
// scripts take larger steps. testdata/long.py has made the file.
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
			tasks := selected(t, []string{c.Task})
			g := &Generator{Inputs: inputs, Count: countWords, Seed: c.Seed, Before: c.Before, After: c.After}
			var got []digest
			samples, err := g.Samples(context.Background(), tasks[0], c.Length, len(c.Samples))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range samples {
				sum := sha256.Sum256([]byte(s.Input + "\x00" + s.AnswerPrefix))
				got = append(got, digest{s.Index, s.Length, s.Outputs, fmt.Sprintf("%x", sum)})
			}
			if diff := cmp.Diff(c.Samples, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
