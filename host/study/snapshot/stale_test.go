package snapshot_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/host/train/config"
)

// TestRelabelled checks that a cell is found by its configuration after a label has changed or an
// axis was added.
func TestRelabelled(t *testing.T) {
	s := load(t)
	f := again(t, collect(t, s, done(t, s, "1", 0, 1, 2, 3), nil, "r1"))
	t.Chdir(t.TempDir()) // without the cells' directories, as on another machine
	for name, text := range map[string]string{
		"another label": strings.Replace(studyFile, `values = [0, 1]`,
			`values = [{label = "first", value = 0}, {label = "second", value = 1}]`, 1),
		"one more axis": studyFile +
			"[[study.axes]]\nname = \"rate\"\nkey = \"schedule.rate\"\nvalues = [0.1, 0.2]\n",
	} {
		write(t, "small.toml", text)
		now := loadFile(t)
		n := 0
		for _, r := range f.Results(now) {
			if r.State == study.Done {
				n++
			}
		}
		if n != 4 || len(f.Unknown(now)) != 0 {
			t.Errorf("%s: %d of 4 kept cells are found, unknown %v", name, n, f.Unknown(now))
		}
		if g := collect(t, now, done(t, now, "1"), f, "r2"); len(g.Cells) != 4 {
			t.Errorf("%s: 'keep' retains %d of 4 cells", name, len(g.Cells))
		}
	}
}

// TestSameResults checks that results that were not trained again keep their revision.
func TestSameResults(t *testing.T) {
	s := load(t)
	first := collect(t, s, done(t, s, "1", 0, 1), nil, "r1")
	second := collect(t, s, done(t, s, "1", 0, 1, 2), first, "r2")
	for _, c := range second.Cells[:2] {
		if got := second.Sources[c.Source].Revision; got != "r1" {
			t.Errorf("%s, trained before r2, is said to be of %s", c.ID, got)
		}
	}
}

// TestNoPrograms checks that a run whose provenance has no programs is not kept.
func TestNoPrograms(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0)
	write(t, filepath.Join(s.Cells[0].Run, "provenance.json"), "{}")
	if f, err := snapshot.Collect(s, results, nil, "r1", day); err == nil {
		t.Errorf("kept, though nobody knows what it was made with: %+v %+v", f.Cells, f.Sources)
	}
}

// TestBuilds checks that results of two builds that are added at once have two sources.
func TestBuilds(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0, 1, 2, 3)
	for _, i := range []int{1, 3} {
		path := filepath.Join(s.Cells[i].Run, "provenance.json")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.Replace(string(text), `"device": "cpu"`, `"device": "cuda"`, 1))
	}
	f := again(t, collect(t, s, results, nil, "r1"))
	for i, device := range []string{"cpu", "cuda", "cpu", "cuda"} {
		if builds := f.Sources[f.Cells[i].Source].Builds; len(builds) != 1 || builds[0].Device != device {
			t.Errorf("%s was trained on %s, and is said to be of %+v", f.Cells[i].ID, device, builds)
		}
	}
	if len(f.Sources) != 2 {
		t.Errorf("%d sources, want 2", len(f.Sources))
	}
}

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

// TestAsked checks that answers to other questions than those in the study file do not count.
func TestAsked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "t.tokens", "")
	write(t, "v.tokens", "")
	write(t, "quiz.toml", quiz)
	rows := `{"word": "a", "ends": ["x", "y"], "right": 1}` + "\n"
	write(t, "quiz_test.jsonl", strings.Repeat(rows, 40))
	write(t, "small.toml", asking)
	s := loadFile(t)
	results := done(t, s, "1", 0, 1)
	for i := range results {
		results[i].Summary["quiz.acc"] = 0.5
		write(t, filepath.Join(s.Cells[i].Dir, "cell.toml"), config.Heading)
		write(t, filepath.Join(s.Cells[i].Dir, "summary.json"), `{"completed": true, "val_loss": 2}`)
	}
	// The tool answers no question.
	if _, err := study.Run(t.Context(), s,
		study.RunOptions{Tool: []string{"sh", "-c", "exit 1"}}); err != nil {
		t.Fatal(err)
	}
	f := again(t, collect(t, s, results, nil, "r1"))
	for _, r := range f.Results(s) {
		if r.State != study.Done {
			t.Errorf("with the same questions: %s is %s, %s", r.Cell.ID, r.State, r.Err)
		}
	}
	for what, change := range map[string]func(){
		"another limit": func() {
			write(t, "small.toml", strings.Replace(asking, "limit = 10", "limit = 20", 1))
		},
		"other rows": func() {
			write(t, "quiz_test.jsonl",
				strings.Repeat(rows, 39)+`{"word": "b", "ends": ["x", "y"], "right": 0}`+"\n")
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
		now := loadFile(t)
		for _, r := range f.Results(now) {
			if _, answered := r.Summary["quiz.acc"]; r.State != study.Unevaluated || answered {
				t.Errorf("%s: %s is %s, %s, with %v", what, r.Cell.ID, r.State, r.Err, r.Summary)
			}
		}
	}
}

const quantized = `
[base]
model = {layers = 1, width = 32, heads = 2, context = 16}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "small"
[[study.axes]]
name = "method"
values = [{label = "full"}, {label = "RTN", set = {quantizer = {plugin = "quest", bits = 4}}, quantize = "rtn"}]
`

// TestQuantizedStale checks that a model that was quantized from a stale model is stale.
func TestQuantizedStale(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "small.toml", quantized)
	s := loadFile(t)
	f := collect(t, s, done(t, s, "1", 0, 1), nil, "r1")
	results := f.Results(s)
	err := f.FindStale(t.Context(), s, results,
		func(_ context.Context, list []*config.Config) []config.Finding {
			out := make([]config.Finding, len(list))
			for i := range out {
				out[i] = config.Finding{Programs: programs("2"), Data: map[string]string{"t.tokens": "bb"}}
			}
			return out
		})
	if got := states(results); err != nil || got != "stale, stale" {
		t.Errorf("%s, %v", got, err)
	}
}
