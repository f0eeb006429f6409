package ruler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func reported(t *testing.T, d Directory) *Report {
	t.Helper()
	r, err := d.Report()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEffectiveLength: averages and the effective length, worked out by hand. A score is
// 100, as the answer has what is wanted, or 0.
func TestEffectiveLength(t *testing.T) {
	for _, c := range []struct {
		right                           string // for the lengths 1000, 2000, …
		average, increasing, decreasing float64
		effective                       int
		says                            string
	}{
		{"y", 100, 100, 100, 1000, "effective length: 1000 at least, the longest tried"},
		{"n", 0, 0, 0, 0, "effective length: below 1000"},
		{"yyn", 200.0 / 3, 50, 250.0 / 3, 2000, "effective length: 2000 (the longest"},
		{"yny", 200.0 / 3, 200.0 / 3, 200.0 / 3, 3000, "effective length: 3000 at least"},
	} {
		d := At(vfs.At(t.TempDir()))
		for i, right := range c.right {
			pred := map[rune]string{'y': "it is FOUND ", 'n': "no"}[right]
			put(t, d, (i+1)*1000, "vt", fmt.Sprintf(`{"pred":%q,"outputs":["found"]}`, pred))
		}
		r := reported(t, d)
		if !near(r.Average, c.average) || !near(r.Increasing, c.increasing) || !near(r.Decreasing, c.decreasing) || r.Effective != c.effective {
			t.Errorf("%s: averages %v, %v, %v, effective length %d; want %v", c.right, r.Average, r.Increasing, r.Decreasing, r.Effective, c)
		}
		if !strings.Contains(r.Words(), c.says) {
			t.Errorf("%s: the report says\n%s\nwant %q", c.right, r.Words(), c.says)
		}
	}
}

// near allows for the rounding of a few sums of numbers up to 100.
func near(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 }

func put(t *testing.T, d Directory, length int, task string, lines ...string) {
	t.Helper()
	tasks := selected(t, []string{task})
	path := d.answers(length, tasks[0])
	if err := path.Dir().MkdirAll(); err != nil {
		t.Fatal(err)
	}
	testfile.Write(t, path.Name, strings.Join(lines, "\n")+"\n")
}

// TestThreshold: a length is effective when its average exceeds the threshold, not when it
// is equal.
func TestThreshold(t *testing.T) {
	for threshold, want := range map[float64]int{49.99: 4096, 50: 0} {
		r := &Report{Threshold: threshold, Lengths: []LengthReport{{Length: 4096, Average: 50}}}
		r.average()
		if r.Effective != want {
			t.Errorf("with the threshold %v the effective length is %d, want %d", threshold, r.Effective, want)
		}
	}
}

// TestUnfinished: answers that are being written count as far as they are whole.
func TestUnfinished(t *testing.T) {
	d := At(vfs.At(t.TempDir()))
	put(t, d, 4096, "vt", `{"pred":"a","outputs":["a"]}`, `{"pred":" \t","outputs":["b"]}`)
	put(t, d, 4096, "fwe", `{"pred":"a","outputs":["a"]}`, `{"pred":"a","out`)
	path := d.path.Join("4096", "pred", "fwe.jsonl")
	text := content(t, path)
	testfile.Write(t, path.Name, strings.TrimSuffix(text, "\n"))
	r := reported(t, d)
	if got, want := r.Lengths[0].Scores["vt"], (TaskReport{Score: 50, Answers: 2, Empty: 1}); got != want {
		t.Errorf("vt has %+v, want %+v", got, want)
	}
	if got, want := r.Lengths[0].Scores["fwe"], (TaskReport{Score: 100, Answers: 1}); got != want {
		t.Errorf("fwe has %+v, want %+v", got, want)
	}
	if !strings.Contains(r.Words(), "fwe at 4096 has 1 of 2 answers") {
		t.Errorf("the report says\n%s", r.Words())
	}
}

// TestBadAnswers: what cannot be scored is an error that names the place.
func TestBadAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`{"pred":"a","outputs":[]}`:     "line 1: missing pred (the answer) or outputs",
		`{"input":"a","outputs":["b"]}`: "line 1: missing pred (the answer) or outputs",
		`{"pred":"a","outputs":"b"}`:    "line 1: ",
		`{"pred":"a","outputs":["b"]}]`: "line 1: ",
	} {
		d := At(vfs.At(t.TempDir()))
		put(t, d, 4096, "vt", text)
		_, err := d.Report()
		if err == nil || !strings.Contains(err.Error(), "vt.jsonl") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
}

// TestLower: letters whose lower case depends on Python's rules.
func TestLower(t *testing.T) {
	for text, want := range map[string]string{"ΑΣ ΑΣΑ": "ας ασα", "İ": "i̇", "ẞ": "ß", "Straße": "straße"} {
		if got := lower(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestFollow: what may change between two uses of a directory, and what may not.
func TestFollow(t *testing.T) {
	base := func() *Manifest {
		return &Manifest{Format: 1, Seed: 42, Samples: 5, Settings: map[string]string{"tokenizer": "t", "words": "made up"}, LeftOut: map[string]string{}, Model: &ModelName{Name: "a"}}
	}
	for name, c := range map[string]struct {
		old, now func(m *Manifest)
		want     string // of the error; empty: none
	}{
		"nothing":       {},
		"more samples":  {now: func(m *Manifest) { m.Samples = 9 }},
		"fewer samples": {now: func(m *Manifest) { m.Samples = 4 }, want: "it has 5 samples of each task, but 4 were requested"},
		"seed":          {now: func(m *Manifest) { m.Seed = 1 }, want: "the prompts were made with the seed 42, not 1"},
		"an input more": {now: func(m *Manifest) { m.Settings["essay"] = "e" }},
		"an input less": {old: func(m *Manifest) { m.Settings["essay"] = "e" }},
		"another input": {now: func(m *Manifest) { m.Settings["words"] = "w" }, want: `the prompts were made with words "made up", not "w"`},
		"first model":   {old: func(m *Manifest) { m.Model = nil }},
		"another model": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "b", Identity: "x"} }, want: "the answers are from a, not from b (x)"},
		"another batch": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 3} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 2} }, want: "the prompts were answered 3 at once, not 2"},
		"a known batch": {old: func(m *Manifest) { m.Model = &ModelName{Name: "a"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Batch: 2} }},
		"moved":         {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "x"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "b", Identity: "x"} }},
		"trained anew":  {old: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "x"} }, now: func(m *Manifest) { m.Model = &ModelName{Name: "a", Identity: "y"} }, want: "the answers are from a (x), not from a (y)"},
	} {
		old, now := base(), base()
		for m, change := range map[*Manifest]func(*Manifest){old: c.old, now: c.now} {
			if change != nil {
				change(m)
			}
		}
		err := now.merge(old)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
		for key, value := range old.Settings {
			if err == nil && now.Settings[key] != value {
				t.Errorf("%s: %s is forgotten", name, key)
			}
		}
	}
}
