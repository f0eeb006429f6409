package kept_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
)

const asking = `
[base]
model = {layers = 1, width = 32, heads = 2, context = 16}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 100, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "small"
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1]
[[study.evaluations]]
tasks = ["quiz.toml"]
data = "."
limit = 10
[[study.tables]]
metric = "quiz.acc"
columns = []
over = ["seed"]
`

const quiz = `name = "quiz"
kind = "choices"
split = "test"
columns = ["word", "ends", "right"]
question = ["{{ word }}"]
choices_of = "ends"
gold = "{{ right }}"
metrics = ["acc", "acc_norm"]
`

// TestAsked: answers to other questions than those that the study file asks now are no results of it.
func TestAsked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "t.tokens", "")
	write(t, "v.tokens", "")
	write(t, "quiz.toml", quiz)
	rows := `{"word": "a", "ends": ["x", "y"], "right": 1}` + "\n"
	write(t, "quiz_test.jsonl", strings.Repeat(rows, 40))
	write(t, "small.toml", asking)
	s, err := study.Load("small.toml")
	if err != nil {
		t.Fatal(err)
	}
	results := done(t, s, "1", 0, 1)
	for i := range results {
		results[i].Summary["quiz.acc"] = 0.5
		write(t, filepath.Join(s.Cells[i].Dir, "cell.toml"), "")
		write(t, filepath.Join(s.Cells[i].Dir, "summary.json"), `{"completed": true, "val_loss": 2}`)
	}
	// A program that answers nothing is asked.
	if _, err := study.Run(t.Context(), s, study.RunOptions{Tool: []string{"sh", "-c", "exit 1"}}); err != nil {
		t.Fatal(err)
	}
	f := again(t, take(t, s, results, nil, "r1"))
	for _, r := range f.Results(s) {
		if r.State != study.Done {
			t.Errorf("with the same questions: %s is %s, %s", r.Cell.ID, r.State, r.Err)
		}
	}
	for what, change := range map[string]func(){
		"another limit": func() { write(t, "small.toml", strings.Replace(asking, "limit = 10", "limit = 20", 1)) },
		"other rows": func() {
			write(t, "quiz_test.jsonl", strings.Repeat(rows, 39)+`{"word": "b", "ends": ["x", "y"], "right": 0}`+"\n")
		},
		"one more task": func() {
			write(t, "more.toml", strings.Replace(quiz, `"quiz"`, `"more"`, 1))
			write(t, "more_test.jsonl", rows)
			write(t, "small.toml", strings.Replace(asking, `["quiz.toml"]`, `["quiz.toml", "more.toml"]`, 1))
		},
	} {
		write(t, "small.toml", asking)
		write(t, "quiz_test.jsonl", strings.Repeat(rows, 40))
		change()
		now, err := study.Load("small.toml")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Results(now) {
			if _, answered := r.Summary["quiz.acc"]; r.State != study.Unevaluated || answered {
				t.Errorf("%s: %s is %s, %s, with %v", what, r.Cell.ID, r.State, r.Err, r.Summary)
			}
		}
	}
}
