package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// model answers by a rule, in batches of two, and fails after a number of batches.
type model struct {
	left     int
	computed int
}

var errGone = errors.New("the model is gone")

func (m *model) spend() error {
	if m.left == 0 {
		return errGone
	}
	m.left--
	m.computed++
	return nil
}

func (m *model) Score(
	_ context.Context, requests []score.Request, skip func(int) bool,
	each func([]int, []score.Score) error,
) error {
	for from := 0; from < len(requests); from += 2 {
		var which []int
		var scores []score.Score
		for i := from; i < min(from+2, len(requests)); i++ {
			sum := int32(0)
			for _, id := range slices.Concat(requests[i].Context, requests[i].Continuation) {
				sum = (sum*31 + id) % 97
			}
			which, scores = append(which, i),
				append(scores, score.Score{LogProb: -float64(sum) / 7, Greedy: sum%3 == 0})
		}
		if !slices.ContainsFunc(which, func(i int) bool { return !skip(i) }) {
			continue
		}
		if err := m.spend(); err != nil {
			return err
		}
		if err := each(which, scores); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) Generate(
	_ context.Context, prompts [][]int32, _ int, until []string,
) ([]string, error) {
	if err := m.spend(); err != nil {
		return nil, err
	}
	texts := make([]string, len(prompts))
	for i, p := range prompts {
		texts[i] = fmt.Sprintf(" so it is %d.\n#### %d%s and more", len(p), len(p), until[0])
	}
	return texts, nil
}

func questions(t *testing.T, name string) tasks.Questions {
	t.Helper()
	task, err := tasks.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{
		"piqa":  `{"goal": "%d?", "sol1": "one", "sol2": "two", "label": 1}`,
		"gsm8k": `{"question": "How many are %d?", "answer": "#### 42"}`,
	}
	var docs []tasks.Doc
	for i := range 7 {
		d, err := task.NewDoc("row", fmt.Appendf(nil, rows[name], i*i*i), false)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, d)
	}
	e := &tasks.Encoder{BOS: -1, Prefix: 0,
		Encode: func(s string) ([]int32, error) { return []int32(s), nil }}
	items, err := task.Items(docs, nil, e, tasks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tasks.Questions{Task: task, Items: items, Until: task.UntilTexts(e), Batch: 2,
		Settings: map[string]string{"model": "m"}}
}

// TestLongChoice checks that a choice that is longer than the context is an error, which names its
// row: its last tokens alone would be another text.
func TestLongChoice(t *testing.T) {
	task, err := tasks.Open("piqa")
	if err != nil {
		t.Fatal(err)
	}
	d, err := task.NewDoc("row 7", []byte(`{"goal": "Long?", "sol1": "no", "sol2": "yes, it is", `+
		`"label": 0}`), false)
	if err != nil {
		t.Fatal(err)
	}
	e := &tasks.Encoder{BOS: -1, Prefix: 0, Context: 10,
		Encode: func(s string) ([]int32, error) { return []int32(s), nil }}
	const want = "row 7: an answer to be scored has 11 tokens, and the context 10"
	if _, err := task.Items([]tasks.Doc{d}, nil, e, tasks.Options{}); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	e.Context = 11
	if _, err := task.Items([]tasks.Doc{d}, nil, e, tasks.Options{}); err != nil {
		t.Error(err)
	}
}

// evaluate asks questions, judges the answers and writes the results.
func evaluate(dir vfs.Path, m tasks.Model, a tasks.Questions) error {
	if err := dir.Join("answers").MkdirAll(); err != nil {
		return err
	}
	path := dir.Join("answers", a.Task.Name+".jsonl")
	answers, err := tasks.Ask(context.Background(), &path, m, a)
	if err != nil {
		return err
	}
	r, err := tasks.Judge(a.Task, a.Items, answers)
	if err != nil {
		return err
	}
	list := []*tasks.Result{r}
	return tasks.WriteResults(dir, list, tasks.Summarize(list, map[string]string{"model": "m"}))
}

// evaluated asks all questions of piqa.
func evaluated(t *testing.T, dir vfs.Path) {
	t.Helper()
	if err := evaluate(dir, &model{left: 100}, questions(t, "piqa")); err != nil {
		t.Fatal(err)
	}
}

// files returns the result files in a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, pattern := range []string{"samples_*", "results.json"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text := testfile.Read(t, name)
			list[filepath.Base(name)] = string(text)
		}
	}
	return list
}

// TestInterrupted checks that an evaluation that is interrupted anywhere, even within a line,
// continues where it stopped.
func TestInterrupted(t *testing.T) {
	for _, name := range []string{"piqa", "gsm8k"} {
		whole := t.TempDir()
		all := &model{left: 100}
		if err := evaluate(vfs.At(whole), all, questions(t, name)); err != nil {
			t.Fatal(err)
		}
		want := files(t, whole)
		if len(want) != 2 || all.computed < 4 {
			t.Fatalf("%d files, %d batches", len(want), all.computed)
		}
		for done := range all.computed {
			dir := t.TempDir()
			first := &model{left: done}
			if err := evaluate(vfs.At(dir), first, questions(t, name)); !errors.Is(err, errGone) {
				t.Fatalf("after %d batches: %v", done, err)
			}
			file := filepath.Join(dir, "answers", name+".jsonl")
			text := testfile.Read(t, file)
			testfile.Write(t, file, text[:len(text)-done%7])
			second := &model{left: 100}
			if err := evaluate(vfs.At(dir), second, questions(t, name)); err != nil {
				t.Fatal(err)
			}
			answers := testfile.Read(t, file)
			if wanted, err := os.ReadFile(filepath.Join(whole, "answers", name+".jsonl")); err != nil ||
				!bytes.Equal(answers, wanted) {
				t.Errorf("%s: after %d batches the answers are\n%s, want\n%s, %v", name, done, answers, wanted,
					err)
			}
			if got := files(t, dir); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: after %d batches the files are %v, want %v", name, done, got, want)
			}
			if again := first.computed + second.computed - all.computed; again > 1 {
				t.Errorf("%s: %d batches were computed again", name, again)
			}
		}
	}
}

// TestFaultsOfReading checks that a failed operation does not remove existing answers.
func TestFaultsOfReading(t *testing.T) {
	dir := t.TempDir()
	evaluated(t, vfs.At(dir))
	path := filepath.Join(dir, "answers", "piqa.jsonl")
	want := testfile.Read(t, path)
	for fs := range faultfs.Each(t, 1, 10) {
		what := fs.Reported(t, evaluate(vfs.On(fs, dir), &model{left: 100}, questions(t, "piqa")))
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: the answers are\n%s, %v", what, got, err)
		}
	}
}

// TestFaults checks that if any file operation fails, the next attempt gives the same files.
func TestFaults(t *testing.T) {
	whole := t.TempDir()
	evaluated(t, vfs.At(whole))
	want := files(t, whole)
	every := testlevel.Sample(3, 1, 1)
	for fs := range faultfs.Each(t, every, 10) {
		dir := t.TempDir()
		what := fs.Reported(t, evaluate(vfs.On(fs, dir), &model{left: 100}, questions(t, "piqa")))
		if err := evaluate(vfs.At(dir), &model{left: 100}, questions(t, "piqa")); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := files(t, dir); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: the files are %v, want %v", what, got, want)
		}
	}
}

// TestOthersAnswers checks that answers of another model, or to other questions, are not used.
func TestOthersAnswers(t *testing.T) {
	dir := vfs.At(t.TempDir())
	evaluated(t, dir)
	other := questions(t, "piqa")
	other.Settings = map[string]string{"model": "n"}
	fewer := questions(t, "piqa")
	fewer.Items = fewer.Items[:3]
	stops := questions(t, "piqa")
	stops.Until = []string{"another end"}
	for want, a := range map[string]tasks.Questions{"answers of another model (m): ": other,
		"answers to other questions: ":                         fewer,
		"answers made with other stop texts or token limits: ": stops} {
		if err := evaluate(dir, &model{left: 100}, a); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzAnswers checks that with any file of answers, the evaluation is refused or complete. Whole
// answers to the questions are trusted.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("{}\n"), true)
	f.Add([]byte(`{"item":0,"logprob":-1}`+"\n"+`{"item":0,"request":1,"logprob":-2,"greedy":true}`+"\n"), true)
	f.Add([]byte(`{"item":99,"logprob":-1}`+"\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, after bool) {
		dir := vfs.At(t.TempDir())
		a := questions(t, "piqa")
		if after { // a whole first line
			if err := evaluate(dir, &model{left: 0}, a); !errors.Is(err, errGone) {
				t.Fatal(err)
			}
		} else if err := dir.Join("answers").MkdirAll(); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(filepath.Join(dir.Name, "answers", "piqa.jsonl"),
			os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(text)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		if evaluate(dir, &model{left: 100}, a) != nil {
			return
		}
		if list, err := tasks.ReadSamples(dir.Join("samples_" + a.Task.Name + ".jsonl")); err != nil ||
			len(list) != 7 {
			t.Fatal(err)
		}
	})
}
