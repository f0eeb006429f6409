package tasks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

const own = `name = "own"
kind = "choices"
columns = ["q", "a", "b"]
split = "test"
question = ["{{ q }}"]
choices = ["{{ a }}", "{{ b }}"]
gold = "0"
metrics = ["acc"]
`

func parsed(t *testing.T, description string) *tasks.Task {
	t.Helper()
	task, err := tasks.Parse("own.toml", []byte(description))
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func row(t *testing.T, task *tasks.Task, place string, object []byte) tasks.Doc {
	t.Helper()
	d, err := task.NewDoc(place, object, false)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestParseRefuses checks that errors name missing and wrong keys of a description.
func TestParseRefuses(t *testing.T) {
	const kinds = `want one of "choices", "continuation", "generation", "text"`
	for _, c := range []struct{ from, to, want string }{
		{`kind = "choices"`, ``, "1: kind: missing; " + kinds},
		{`kind = "choices"`, `kind = "quiz"`, `2: kind: found the string "quiz"; ` + kinds},
		{`kind =`, `Kind =`, `2: Kind: unknown key; did you mean kind?`},
		{`name = "own"`, ``, "1: name: missing; want a string that can be a file's, without slashes"},
		{`name = "own"`, `name = "a/b"`,
			`1: name: found the string "a/b"; want a string that can be a file's, without slashes`},
		{`gold = "0"`, `golden = "0"`, `7: golden: unknown key; did you mean gold?`},
		{`gold = "0"`, ``, "1: gold: missing; want a template for the index of the correct choice"},
		{`metrics = ["acc"]`, `metrics = ["perplexity"]`,
			`8: metrics: a task of kind choices has no "perplexity"; want some of acc, acc_norm`},
		{`metrics = ["acc"]`, `metrics = []`, "8: metrics: missing; want some of acc, acc_norm"},
		{`metrics = ["acc"]`, `metrics = 1`,
			"8: metrics: found the integer 1; want a string or an array of strings"},
		{`split = "test"`, ``,
			`1: split: missing; want a string that names the split with the questions, such as split = "test"`},
		{`split = "test"`, `split  "test"`,
			"4: not valid TOML: expected '.' or '=', but got '\"' instead"},
		{`split = "test"`, "split = \"test\"\nclean = [['(', '']]",
			"5: clean[0]: missing closing ): `(`; want a regular expression"},
		{`split = "test"`, "split = \"test\"\nclean = [['a']]",
			`5: clean: found an array; want an array of pairs of a pattern and its replacement, such as [["\\s+", " "]]`},
		{`split = "test"`, "split = \"test\"\nshots = -1",
			"5: shots: found the integer -1; want an integer from 0 to 1000000000"},
		{`split = "test"`, "split = \"test\"\nfilters = [{name = \"x\", pattern = \"x\"}]",
			"5: filters: found in a task of kind choices; want none: they belong to the kind generation"},
		{`split = "test"`, "split = \"test\"\nfilters = [{patern = \"x\"}]",
			`5: filters[0].patern: unknown key; did you mean filters[0].pattern?`},
		{`["{{ q }}"]`, `["{{ q }"]`, `5: question: template own, line 1: unmatched "}"`},
		{`"{{ b }}"]`, `"{% if %}"]`, "6: choices[1]: template own, line 1: "},
		{`["{{ q }}"]`, `["{{ q }}", "{{ a }}"]`, "1: target: missing; want the continuation of the " +
			"questions, of which there is one for each choice"},
		{`gold = "0"`, "gold = \"0\"\ntarget = \"x\"",
			"8: target: found with a single question; want choices or choices_of instead"},
		{`choices = ["{{ a }}", "{{ b }}"]`, ``, "1: choices: missing; want choices or choices_of, or " +
			"one question for each choice, with target"},
		{`"choices"`, "1\nshots = true", "2: kind: found the integer 1; " + kinds +
			"\nown.toml:3: shots: found the boolean true; want an integer from 0 to 1000000000"},
	} {
		if _, err := tasks.Parse("own.toml", []byte(strings.Replace(own, c.from, c.to, 1))); err == nil ||
			!strings.HasPrefix(err.Error(), "own.toml:"+c.want) {
			t.Errorf("%q:\n got %v\nwant own.toml:%s", c.to, err, c.want)
		}
	}
	if _, err := tasks.Open("no-task"); err == nil || !strings.Contains(err.Error(), "hellaswag") {
		t.Errorf("an unknown task: %v", err)
	}
}

// TestRowsRefuse checks that errors in rows have their positions.
func TestRowsRefuse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	for _, c := range []struct{ rows, want string }{
		{`{"q": "?", "a": "x"}`, `line 1: the row has no "b": own needs the columns q, a, b`},
		{`[1]`, "line 1: want an object"},
		{"", "no rows"},
	} {
		testfile.Write(t, file, c.rows)
		task := parsed(t, own)
		if _, err := task.ReadDocs([]string{file}, false); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q in it", c.rows, err, c.want)
		}
	}
}

// TestTemplateOfRow checks that if a template has no value for a row, the error names both.
func TestTemplateOfRow(t *testing.T) {
	task, err := tasks.Open("lambada_openai")
	if err != nil {
		t.Fatal(err)
	}
	d := row(t, task, "rows.jsonl: line 3", []byte(`{"text": "word"}`))
	_, err = task.Items([]tasks.Doc{d}, nil, nil, tasks.Options{})
	const want = `rows.jsonl: line 3: target = "{{ text.rsplit(' ', 1)[1] }}": element [1] of a list of length 1 (counted from 0) is undefined`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestFilesOfSplits checks that a split is one file of its name, or all of a numbered set, and that
// other files are not parts of it.
func TestFilesOfSplits(t *testing.T) {
	task := parsed(t, own)
	const second = "own/data/test-00001-of-00002-0f2a.parquet"
	for _, c := range []struct {
		files string
		want  string // the files, or a part of the error
	}{
		{"own/test.jsonl own/test-2.jsonl own/test_socratic.jsonl own/testing.jsonl own/test.txt " +
			"own_test.parquet", "own/test.jsonl"},
		{"own/data/test-00000-of-00002-9ab1.parquet " + second,
			"own/data/test-00000-of-00002-9ab1.parquet " + second},
		{"own/test.jsonl own/data/train-00000-of-00001.parquet", "own/test.jsonl"},
		{"own_test.jsonl.zst", "own_test.jsonl.zst"},
		{"own/test.jsonl own/test.parquet", "are named as the same rows"},
		{"own/test.jsonl own/test-00000-of-00001.parquet", "are named as shards of different sets"},
		{"own/test-00000-of-00001.parquet own/test-00000-of-00002.parquet", "are named as the same rows"},
		{"own/test-00000-of-00001.parquet own/test-00001-of-00002.parquet",
			"are named as shards of different sets"},
		{"own/test-00001-of-00001.parquet own/test-00000-of-00001.parquet",
			"has 2 files named as shards of 00001"},
		{second, "test-00000-of-00002 is missing"},
		{"own/test_socratic.jsonl own/test-2.jsonl", `no rows of the split "test"`},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			testfile.Write(t, path, "")
		}
		got, err := task.Files(dir, "test")
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+string(filepath.Separator))
		}
		switch {
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %s", c.files, err, c.want)
		case err == nil && strings.Join(got, " ") != c.want:
			t.Errorf("%s: %v, want %s", c.files, got, c.want)
		}
	}
}

// TestUnknownColumn checks that a name in a template that is no column is an error.
func TestUnknownColumn(t *testing.T) {
	task := parsed(t, strings.Replace(own, "{{ q }}", "Is {{ qq }} so?", 1))
	d := row(t, task, "row", []byte(`{"q": "?", "a": "x", "b": "y"}`))
	if _, err := task.Items([]tasks.Doc{d}, nil, encoder(t), tasks.Options{}); err == nil ||
		!strings.Contains(err.Error(), "qq is undefined") {
		t.Errorf("%v", err)
	}
}

// TestGoldRefused checks that the index of the right choice must be that of a choice.
func TestGoldRefused(t *testing.T) {
	for _, gold := range []string{"2", "-1", "x", ""} {
		task := parsed(t, strings.Replace(own, `gold = "0"`, `gold = "{{ g }}"`, 1))
		d := row(t, task, "row", fmt.Appendf(nil, `{"q": "?", "a": "x", "b": "y", "g": %q}`, gold))
		if _, err := task.Items([]tasks.Doc{d}, nil, encoder(t), tasks.Options{}); err == nil ||
			!strings.Contains(err.Error(), "the correct choice is") {
			t.Errorf("gold %q: %v", gold, err)
		}
	}
}

// FuzzParse checks that a description is refused with a line for each problem, or can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(own), []byte(`{"q": "?", "a": "x", "b": "y"}`))
	f.Add([]byte(strings.Replace(own, "{{ q }}", "{{ q.split('_')[7] }}", 1)),
		[]byte(`{"q": "?", "a": "x", "b": "y"}`))
	e := &tasks.Encoder{BOS: -1, Prefix: 0, Encode: func(s string) (ids []int32, _ error) {
		for _, b := range []byte(s) {
			ids = append(ids, int32(b))
		}
		return ids, nil
	}}
	f.Fuzz(func(t *testing.T, description, row []byte) {
		task, err := tasks.Parse("own.toml", description)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "own.toml:") {
					t.Fatalf("no place in %v", err)
				}
			}
			return
		}
		d, err := task.NewDoc("row", row, false)
		if err != nil {
			return
		}
		items, err := task.Items([]tasks.Doc{d}, []tasks.Doc{d, d}, e,
			tasks.Options{Shots: task.Shots % 2})
		if err != nil {
			return
		}
		a := &tasks.Answer{LogProbs: make([]float64, len(items[0].Scored)),
			Greedy: make([]bool, len(items[0].Scored)), Text: new(string)}
		values, err := task.Judge(&items[0], a)
		if err != nil {
			t.Fatal(err)
		}
		task.Aggregate([]map[string]float64{values})
	})
}

func ExampleTask_Items() {
	task, err := tasks.Open("piqa")
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := task.NewDoc("line 1",
		[]byte(`{"goal": "How do you keep apples fresh?", "sol1": "In a cellar.", "sol2": "In the sun.", "label": 0}`), false)
	if err != nil {
		fmt.Println(err)
		return
	}
	e := &tasks.Encoder{BOS: -1, Prefix: -1,
		Encode: func(s string) ([]int32, error) { return []int32(s), nil }}
	items, err := task.Items([]tasks.Doc{d}, nil, e, tasks.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range items[0].Texts {
		fmt.Printf("%q\n", r.Context+r.Continuation)
	}
	values, err := task.Judge(&items[0],
		&tasks.Answer{LogProbs: []float64{-9, -12}, Greedy: []bool{false, false}})
	fmt.Println(values["acc,none"], err)
	// Output:
	// "Question: How do you keep apples fresh?\nAnswer: In a cellar."
	// "Question: How do you keep apples fresh?\nAnswer: In the sun."
	// 1 <nil>
}

// TestKeysAreDescribed checks that docs/guide/evaluation.md describes every key of a task.
func TestKeysAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/evaluation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tasks.KeyNames() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/guide/evaluation.md does not describe the key %s", name)
		}
	}
}
