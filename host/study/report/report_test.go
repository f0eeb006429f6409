package report_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/vfs"
)

var update = flag.Bool("update", false, "write what was found into testdata")

// build returns the report of a study whose cells are done as in fixture_test.go.
func build(t testing.TB, text string) *report.Report {
	t.Helper()
	s := parse(t, text, filepath.Join(t.TempDir(), "studies", "bits"))
	results(t, s)
	return reportOf(t, s)
}

// TestTablesAreThoseOfTheGoldens compares tables with testdata, whose numbers follow by hand from
// fixture_test.go. For QuEST and 2 bits, the mean is 3.2 and the standard deviation 0.2; the
// differences of CAGE from it are −0.1, −0.2, −0.3 with mean −0.2, standard deviation 0.1, and an
// interval of ±4.30265·0.1/√3 = ±0.24841. In 4 bits, where two seeds can be paired, they are −0.01
// and 0.02, with mean 0.005, standard deviation 0.0212132, and no interval.
func TestTablesAreThoseOfTheGoldens(t *testing.T) {
	r := build(t, grid)
	for name, got := range map[string][]byte{"report.md": r.Markdown(), "report.tex": r.LaTeX()} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestBaseline compares all entries with one in another row, also in a table without columns.
func TestBaseline(t *testing.T) {
	for _, c := range []struct {
		table string
		want  []string
	}{
		{`
rows = ["bits"]
columns = ["method"]
where = {method = ["QuEST", "full precision"]}
baseline = {method = "full precision", bits = 16}`, []string{
			"| bits | QuEST | full precision |", "| 2 | 3.20 ± 0.20 |  |", "| 16 |  | 1.50 (n = 1) |",
			"| bits | QuEST |", "| 2 | +1.50 (n = 1) |",
			"Differences from full precision · 16, paired by replicate",
		}},
		{`
rows = ["method"]
where = {bits = "2", method = ["QuEST", "CAGE"]}
baseline = {method = "QuEST"}`, []string{
			"| method | validation loss |", "| QuEST | 3.20 ± 0.20 |", "| QuEST | – |",
			"| CAGE | −0.20 [−0.45, +0.05] |",
		}},
	} {
		text := strings.Replace(grid, `title = "Validation loss"`,
			"over = [\"seed\"]"+c.table+"\n[[study.tables]]\n"+`title = "Validation loss"`, 1)
		r := build(t, text)
		got := string(r.Tables[0].Markdown(false))
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("the table lacks %q:\n%s", want, got)
			}
		}
	}
}

// TestHigherIsBetter checks that the direction of an evaluation's metric is known: if higher is
// better, the highest value of a row is marked as the best, and the report states the direction.
func TestHigherIsBetter(t *testing.T) {
	const evaluated = `
[[study.evaluations]]
tasks = ["piqa", "lambada_openai"]
data = "rows"
[[study.tables]]
metric = "piqa.acc"
rows = ["bits"]
columns = ["method"]
over = ["seed"]
baseline = {method = "QuEST"}
where = {bits = "2"}
[[study.tables]]
metric = "lambada_openai.perplexity"
rows = ["bits"]
columns = ["method"]
over = ["seed"]
where = {bits = "2"}
`
	s := parse(t, grid+evaluated, filepath.Join(t.TempDir(), "studies", "bits"))
	results(t, s)
	list, err := s.Results()
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if r := &list[i]; r.Trained() {
			r.Summary["piqa.acc"], r.Summary["lambada_openai.perplexity"] = 1/r.Summary["val_loss"],
				r.Summary["val_loss"]
		}
	}
	r := newReport(t, s, list)
	n := len(r.Tables)
	accuracy, perplexity := r.Tables[n-2], r.Tables[n-1]
	if accuracy.Better != "higher" || perplexity.Better != "lower" {
		t.Errorf("better is %q of an accuracy and %q of a perplexity", accuracy.Better, perplexity.Better)
	}
	for what, table := range map[string]report.Table{"accuracy": accuracy, "perplexity": perplexity} {
		var marks []report.Mark
		for _, e := range table.Entries[0] {
			marks = append(marks, e.Mark)
		}
		if want := []report.Mark{report.Tied, report.Best, report.Plain}; !slices.Equal(marks, want) {
			t.Errorf("%s: marks %q, want %q", what, marks, want)
		}
	}
	if d := accuracy.Entries[0][1].Difference; d == nil || !(d.Mean > 0) {
		t.Errorf("the difference of accuracies is %+v", d)
	}
	page := pageOf(t, r)
	text := string(r.Markdown())
	for _, want := range []string{"piqa.acc", "higher is better"} {
		if !strings.Contains(text, want) || !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q in the report", want)
		}
	}
}

// TestEntries checks the same numbers in the entries of the table.
func TestEntries(t *testing.T) {
	table := build(t, grid).Tables[0]
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) < 1e-12) && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	cage2, cage4, hostile4, full := table.Entries[0][1], table.Entries[1][1], table.Entries[1][2],
		table.Entries[2][3]
	near("mean of CAGE, 2 bits", cage2.Mean, 3)
	near("its deviation", cage2.SD, 0.1)
	near("its difference", cage2.Difference.Mean, -0.2)
	near("its lower end", cage2.Difference.Low, -0.2-4.302652729749464*0.1/math.Sqrt(3))
	near("mean of CAGE, 4 bits", cage4.Mean, 2.055)
	near("its difference, of the seeds that both have", cage4.Difference.Mean, 0.005)
	near("interval of two pairs", cage4.Difference.High, math.NaN())
	near("deviation of a single run", hostile4.SD, math.NaN())
	near("interval of a single pair", hostile4.Difference.Low, math.NaN())
	near("a run that diverged", table.Entries[0][2].Mean, math.NaN())
	for _, test := range []struct {
		what string
		e    report.Entry
		mark report.Mark
		n    int
	}{
		{"CAGE, 2 bits", cage2, report.Best, 3}, {"QuEST, 2 bits", table.Entries[0][0], report.Tied, 3},
		{"CAGE, 4 bits", cage4, report.Best, 2}, {"one replicate", hostile4, report.Untested, 1},
		{"nothing to be compared with", full, report.Plain, 1},
		{"no part of the study", table.Entries[2][0], report.Plain, 0},
		{"diverged", table.Entries[0][2], report.Plain, 3},
	} {
		if test.e.Mark != test.mark || test.e.N != test.n {
			t.Errorf("%s: %q with n = %d, want %q with %d", test.what, test.e.Mark, test.e.N, test.mark,
				test.n)
		}
	}
	if table.Entries[2][0].Expected != 0 || cage4.Expected != 3 {
		t.Errorf("%d and %d replicates are expected, want 0 and 3", table.Entries[2][0].Expected,
			cage4.Expected)
	}
}

// TestMarks checks that entries clearly worse than the best have no mark, and that the highest is
// the best where higher is better.
func TestMarks(t *testing.T) {
	text := strings.Replace(grid, `format = "%%.3f"`, `better = "higher"`, 1)
	table := build(t, text).Tables[0]
	if got := table.Entries[0][0].Mark; got != report.Best {
		t.Errorf("the highest is %q", got)
	}
	old := losses["CAGE 2"]
	defer func() { losses["CAGE 2"] = old }()
	losses["CAGE 2"] = []float64{2.5, 2.71, 2.9}
	table = build(t, grid).Tables[0]
	if e := table.Entries[0][0]; e.Mark != report.Plain || !table.Entries[0][1].Difference.Clear() {
		t.Errorf("QuEST is %q though the difference is %+v", e.Mark, table.Entries[0][1].Difference)
	}
	oldQuEST := losses["QuEST 2"]
	defer func() { losses["QuEST 2"] = oldQuEST }()
	diverged := []float64{math.Inf(1), math.Inf(1), math.Inf(1)}
	losses["CAGE 2"], losses["QuEST 2"] = diverged, diverged
	table = build(t, grid).Tables[0]
	for _, e := range table.Entries[0] {
		if e.Mark != report.Plain {
			t.Errorf("where every run diverged, one is %q", e.Mark)
		}
	}
	losses["CAGE 2"] = []float64{math.Inf(1), 2.9, 3.0}
	losses["QuEST 2"] = oldQuEST
	table = build(t, grid).Tables[0]
	if a, b := table.Entries[0][0].Mark, table.Entries[0][1].Mark; a != report.Best ||
		b != report.Plain {
		t.Errorf("of one that is finite and one that diverged, the first is %q and the second %q", a, b)
	}
}

// TestSameResultsSameBytes checks that a report depends only on the results, not on directories,
// nor on when runs ended, how fast they were, or how often they were tried.
func TestSameResultsSameBytes(t *testing.T) {
	var first map[string]string
	for i := range 2 {
		dir := t.TempDir()
		if _, err := build(t, grid).Save(vfs.At(dir)); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		if err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			files[name] = string(content)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = files
			continue
		}
		if len(files) != 18 {
			t.Errorf("%d files, want 18: three, and five figures in three formats", len(files))
		}
		for name := range first {
			if files[name] != first[name] {
				t.Errorf("%s differs", name)
			}
			if text := files[name]; !strings.HasSuffix(name, ".png") &&
				(strings.Contains(text, os.TempDir()+"/") || strings.Contains(text, "/home/someone")) {
				t.Errorf("%s has an absolute path", name)
			}
		}
	}
}
