package chat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/vfstest"
)

// conversations returns n rows; row i has the answer "answer i".
func conversations(n int) Rows {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf(`{"prompt": "q", "completion": "answer %d"}`, i))
	}
	return rowsOf(texts...)
}

func row(number int, text string, unread ...string) data.InputRow {
	return data.InputRow{Path: "rows",
		Row: source.Row{Unit: "line", Number: int64(number), Text: []byte(text), Unread: unread}}
}

func rowsOf(texts ...string) Rows {
	return func(yield func(data.InputRow, error) bool) {
		for i, text := range texts {
			if !yield(row(i+1, text), nil) {
				return
			}
		}
	}
}

// options returns options to prepare rows with bytes as tokens.
func options(t testing.TB, list Rows, out string) PrepareOptions {
	return PrepareOptions{Rows: list, Out: out, Files: vfstest.NoSync, Tokenizer: tokenizer.Bytes{},
		Template: encoder(t, plain, "").template, ValFraction: 0.25, Seed: 1}
}

func prepare(t *testing.T, o PrepareOptions) *Manifest {
	t.Helper()
	m, err := Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answers returns the marked texts of a file's documents, without their usual beginning and end.
func answers(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range f.Documents() {
		d := &Document{make([]int32, f.Tokens(i)), make([]bool, f.Tokens(i))}
		if err := f.ReadDocument(i, d.IDs, d.Loss); err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(marked(d), "u:q;a:[answer "), ";]"))
	}
	return list
}

// TestPrepare checks that every conversation is in one of the parts, that all preparations make the
// same files, and that the manifest counts the conversations.
func TestPrepare(t *testing.T) {
	out := filepath.Join(t.TempDir(), "set")
	m := prepare(t, options(t, conversations(200), out))
	train, val := answers(t, filepath.Join(out, dataset.Conversations.Train)),
		answers(t, filepath.Join(out, dataset.Conversations.Val))
	// 50 ± six standard deviations of a binomial distribution (n = 200, p = ¼).
	if len(val) < 14 || len(val) > 86 {
		t.Errorf("%d of 200 conversations are for validation, want about 50", len(val))
	}
	all := slices.Sorted(slices.Values(slices.Concat(train, val)))
	distinct := len(slices.Compact(slices.Clone(all)))
	if len(all) != 200 || distinct != 200 {
		t.Errorf("%d conversations are in the parts, %d of them distinct, want 200", len(all), distinct)
	}
	if m.Rows != 200 || m.Documents != 200 || m.Train.Documents != int64(len(train)) ||
		m.Val.Documents != int64(len(val)) || m.Template != "test" || m.TrainOn != "all_turns" {
		t.Errorf("the manifest is %+v", m)
	}
	found, err := dataset.Verify(t.Context(), out)
	if err != nil || len(found) != 4 {
		t.Errorf("%d files are verified, %v, want 4", len(found), err)
	}
	for _, v := range found {
		if v.Err != nil {
			t.Error(v.Err)
		}
	}
	again := filepath.Join(t.TempDir(), "set")
	prepare(t, options(t, conversations(200), again))
	if diff := cmp.Diff(contents(t, out), contents(t, again)); diff != "" {
		t.Errorf("the second preparation differs:\n%s", diff)
	}
}

// contents returns the files in a directory by name, the manifest without its time.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	return vfstest.Contents(t, dir, `"seconds"`)
}

// TestPrepareShare checks that a conversation is for validation if its random number is below the
// fraction, so that it stays there when the fraction grows. Keeping any but the one with the
// largest number for training would let later trainings use validation data. With every fraction,
// the smallest number is for validation and the largest for training.
func TestPrepareShare(t *testing.T) {
	const n = 40
	for _, fraction := range []float64{1e-9, 0.1, 0.5, 0.9, 1 - 1e-9} {
		o := options(t, conversations(n), t.TempDir())
		o.ValFraction = fraction
		prepare(t, o)
		rng := rand.NewPCG(o.Seed, splitSequence)
		numbers := make([]uint64, n)
		for i := range numbers {
			numbers[i] = rng.Uint64()
		}
		var want []string
		for i, number := range numbers {
			if number == slices.Min(numbers) || number < uint64(math.Ldexp(fraction, 64)) &&
				number != slices.Max(numbers) {
				want = append(want, strconv.Itoa(i))
			}
		}
		got := answers(t, filepath.Join(o.Out, dataset.Conversations.Val))
		if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("share %v: for validation are %v, want %v", fraction, got, want)
		}
	}
}

// TestPrepareDivided checks that all documents of a conversation are in one part, and that the
// manifest counts the additional ones.
func TestPrepareDivided(t *testing.T) {
	const n = 40
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf(
			`{"messages": [{"role": "user", "content": "%d"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]}`, i+10))
	}
	o := options(t, rowsOf(rows...), t.TempDir())
	o.Template = encoder(t, cutsOther, "").template
	m := prepare(t, o)
	for _, part := range []string{dataset.Conversations.Train, dataset.Conversations.Val} {
		texts := answers(t, filepath.Join(o.Out, part))
		for i := 0; i < len(texts); i += 2 {
			number := texts[i][len("u:"):len("u:10")]
			if want := []string{"u:" + number + ";a:[a", "u:" + number + ";a:;u:r;a:[b"}; !slices.Equal(
				texts[i:i+2], want) {
				t.Fatalf("%s: %q, want %q", part, texts[i:i+2], want)
			}
		}
	}
	if want := (Divided{Conversations: n, Documents: n,
		Tokens: n * int64(len("u:10;a:a;"))}); m.Documents != 2*n || m.Divided != want ||
		m.Val.Documents%2 != 0 {
		t.Errorf("the manifest has %+v", m)
	}
}

// TestPrepareFew checks that each part gets at least one conversation, with any fraction, and that
// fewer than two are an error.
func TestPrepareFew(t *testing.T) {
	for n, want := range map[int]string{
		0: "prepare: no conversation counts in the loss: there are no rows",
		1: "prepare: cannot divide one conversation", 2: "", 7: ""} {
		o := options(t, conversations(n), t.TempDir())
		o.ValFraction = 1e-9
		m, err := Prepare(t.Context(), o)
		if want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%d conversations: got %v, want %s", n, err, want)
			}
			continue
		}
		if err != nil || m.Val.Documents != 1 || m.Train.Documents != int64(n-1) {
			t.Errorf("%d conversations, few for validation: %+v, %v", n, m, err)
		}
		o.ValFraction = 1 - 1e-9
		m, err = Prepare(t.Context(), o)
		if err != nil || m.Train.Documents != 1 || m.Val.Documents != int64(n-1) {
			t.Errorf("%d conversations, most for validation: %+v, %v", n, m, err)
		}
	}
}

// TestPrepareValidation checks validation with separate rows.
func TestPrepareValidation(t *testing.T) {
	o := options(t, conversations(3), t.TempDir())
	o.ValRows, o.ValFraction = rowsOf(`{"prompt": "q", "completion": "answer v"}`), 0
	prepare(t, o)
	got := fmt.Sprint(answers(t, filepath.Join(o.Out, dataset.Conversations.Train)),
		answers(t, filepath.Join(o.Out, dataset.Conversations.Val)))
	if got != "[0 1 2] [v]" {
		t.Errorf("got %s", got)
	}
	silent := `{"messages": [{"role": "user", "content": "x"}]}`
	o.ValRows = rowsOf(silent)
	if _, err := Prepare(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "no validation conversation counts in the loss; of 1 rows, 1: "+
			"nothing that the assistant says carries loss (first at rows: line 1)") {
		t.Errorf("nothing for validation: %v", err)
	}
	o.ValRows, o.Rows = conversations(1), rowsOf(silent)
	if _, err := Prepare(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "no conversation counts in the loss") {
		t.Errorf("nothing for training: %v", err)
	}
}

// TestPrepareCounts checks that dropped and bad rows are counted by reason, and that a template's
// reasons beyond a limit are counted together.
func TestPrepareCounts(t *testing.T) {
	texts := []string{
		`{"prompt": "q", "completion": "answer 1"}`, `nothing`,
		`{"messages": [{"role": "user", "content": "x"}]}`,
		`{"prompt": "q", "completion": "answer 2"}`, `{"messages": []}`,
		`{"messages": [{"role": "user", "content": "y"}]}`,
	}
	o := options(t, rowsOf(texts...), t.TempDir())
	if _, err := Prepare(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(),
			"rows: line 2: not valid JSON: invalid character 'o' in literal null") ||
		!strings.Contains(err.Error(), "--skip-bad") {
		t.Errorf("a bad row: %v", err)
	}
	if left, err := os.ReadDir(o.Out); err != nil || len(left) != 1 {
		t.Errorf("a preparation that failed leaves %v, %v, want only the lock", left, err)
	}
	o.SkipBad = true
	m := prepare(t, o)
	want := Counts{Rows: 6, Documents: 2, Dropped: []RowCount{{NoLoss, "", 2, "rows: line 3"}},
		Ignored: []RowCount{}, Bad: 2, FirstBad: m.FirstBad, BadReasons: []RowCount{
			{Reason(strings.TrimPrefix(m.FirstBad, "rows: line 2: ")), "", 1, "rows: line 2"},
			{"messages: the list is empty", "", 1, "rows: line 5"}}}
	if diff := cmp.Diff(want, m.Counts); diff != "" ||
		!strings.HasPrefix(m.FirstBad,
			"rows: line 2: not valid JSON: invalid character 'o' in literal null") {
		t.Errorf("first bad %q\n%s", m.FirstBad, diff)
	}
	var c Counts
	for i := range 50 {
		c.add(outcome{dropped: Reason(fmt.Sprintf("reason %d", i)), location: "x"})
	}
	if len(c.Dropped) != maxReasons+1 || c.Dropped[0].Rows != 50-maxReasons ||
		c.Dropped[0].Reason != otherReasons {
		t.Errorf("50 reasons give %+v", c.Dropped)
	}
}

// TestPrepareUnreadableRows checks that rows that cannot be read are counted by the problem, which
// does not depend on the number of the row.
func TestPrepareUnreadableRows(t *testing.T) {
	const problem = "a text is not UTF-8"
	o := options(t, func(yield func(data.InputRow, error) bool) {
		for i := range 40 {
			r := row(i+1, `{"prompt": "q", "completion": "a"}`)
			if i > 4 {
				r.Text, r.Err = nil, &source.RowError{Unit: r.Unit, Number: r.Number, Problem: problem}
			}
			if !yield(r, nil) {
				return
			}
		}
	}, t.TempDir())
	const first = "rows: line 6"
	if _, err := Prepare(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), first+": "+problem+"; --skip-bad") {
		t.Errorf("an unreadable row: %v", err)
	}
	o.SkipBad = true
	m := prepare(t, o)
	want := []RowCount{{problem, "", 35, first}}
	if diff := cmp.Diff(want, m.BadReasons); diff != "" || m.FirstBad != first+": "+problem {
		t.Errorf("first bad %q, reasons (-want +got):\n%s", m.FirstBad, diff)
	}
}

// TestPrepareChanges checks that a text which the tokenizer changes is a fault of its row: here,
// white space after special tokens is lost.
func TestPrepareChanges(t *testing.T) {
	file := testfile.Read(t, "testdata/llama32.tokenizer.json")
	tok, err := tokenizer.ReadHuggingFace(
		bytes.ReplaceAll(file, []byte(`"rstrip": false`), []byte(`"rstrip": true`)), nil)
	if err != nil {
		t.Fatal(err)
	}
	const row = `{"prompt": "q", "completion": "%s"}`
	o := options(t, rowsOf(fmt.Sprintf(row, "one"), fmt.Sprintf(row, "a<|eot_id|> b"),
		fmt.Sprintf(row, "two")), t.TempDir())
	o.Tokenizer = tok
	_, err = Prepare(t.Context(), o)
	for _, want := range []string{"rows: line 2: tokenizer", `its tokens give "b" at " b;"`,
		"--skip-bad"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	o.SkipBad = true
	if m := prepare(t, o); m.Bad != 1 || m.Documents != 2 {
		t.Errorf("%d bad rows and %d documents, want 1 and 2", m.Bad, m.Documents)
	}
}

func TestPrepareMistakes(t *testing.T) {
	broken := errors.New("the disk is broken")
	for want, change := range map[string]func(*PrepareOptions){
		"no output folder":                 func(o *PrepareOptions) { o.Out = "" },
		"validation fraction 0, want":      func(o *PrepareOptions) { o.ValFraction = 0 },
		"validation fraction 1, want":      func(o *PrepareOptions) { o.ValFraction = 1 },
		"and validation rows are mutually": func(o *PrepareOptions) { o.ValRows = conversations(1) },
		`train on "x": want`:               func(o *PrepareOptions) { o.TrainOn = "x" },
		"the disk is broken": func(o *PrepareOptions) {
			o.Rows = func(y func(data.InputRow, error) bool) { y(data.InputRow{}, broken) }
		},
		"rows: line 1: template test, line ": func(o *PrepareOptions) {
			o.Template = encoder(t, "{{ x.y }}", "").template
		},
	} {
		o := options(t, conversations(4), t.TempDir())
		change(&o)
		if _, err := Prepare(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Prepare(ctx, options(t, conversations(4), t.TempDir())); !errors.Is(err,
		context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// TestVerifyDamage checks that Verify detects damaged and exchanged files.
func TestVerifyDamage(t *testing.T) {
	out := t.TempDir()
	prepare(t, options(t, conversations(9), out))
	whole := contents(t, out)
	for name, want := range map[string]string{
		dataset.Conversations.Train: "hash", dataset.Conversations.Val: "hash",
		tokenizer.TemplateFile:         "is not the template that chat.json describes",
		dataset.Conversations.Manifest: "not valid JSON: invalid character",
	} {
		path := filepath.Join(out, name)
		content := testfile.Read(t, path)
		damaged := append([]byte(nil), content...)
		damaged[min(4096, len(damaged)-3)] ^= 1
		testfile.Write(t, path, damaged)
		found, err := dataset.Verify(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			if bad := filepath.Base(v.Path) == name; bad != (v.Err != nil) || bad &&
				!strings.Contains(v.Err.Error(), want) {
				t.Errorf("%s damaged: %s has the error %v, want %s", name, v.Path, v.Err, want)
			}
		}
		testfile.Write(t, path, content)
	}
	if diff := cmp.Diff(whole, contents(t, out)); diff != "" {
		t.Fatal(diff)
	}
	// Replace a file by that of another preparation.
	other := t.TempDir()
	prepare(t, options(t, conversations(8), other))
	if err := os.Rename(filepath.Join(other, dataset.Conversations.Train),
		filepath.Join(out, dataset.Conversations.Train)); err != nil {
		t.Fatal(err)
	}
	found, err := dataset.Verify(t.Context(), out)
	if err != nil || found[1].Err == nil ||
		!strings.Contains(found[1].Err.Error(), "is not the file that chat.json describes") {
		t.Errorf("a file of another preparation: %v, %v", found[1].Err, err)
	}
}

// TestVerifyBothKinds checks that of a folder with conversations and texts both are verified.
func TestVerifyBothKinds(t *testing.T) {
	out := t.TempDir()
	prepare(t, options(t, conversations(4), out))
	texts := t.TempDir()
	testfile.Tree(t, texts, map[string]string{"a.txt": "one", "b.txt": "two"})
	if _, err := data.Prepare(t.Context(), data.PrepareOptions{Inputs: []string{texts}, Out: out,
		Files: vfstest.NoSync, Tokenizer: tokenizer.Bytes{}}); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(out, dataset.Texts.Val)
	testfile.Write(t, damaged, "not a token file")
	found, err := dataset.Verify(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range found {
		if names = append(names, filepath.Base(v.Path)); (v.Err != nil) != (v.Path == damaged) {
			t.Errorf("%s: %v", v.Path, v.Err)
		}
	}
	want := []string{dataset.Conversations.Manifest, dataset.Conversations.Train,
		dataset.Conversations.Val, tokenizer.TemplateFile, dataset.Texts.Manifest, dataset.Texts.Train,
		dataset.Texts.Val}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}
