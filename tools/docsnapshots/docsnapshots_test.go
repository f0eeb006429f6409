package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
)

const studyFile = `
[base]
model = {kind = "toy"}
train = {steps = 10}
schedule = {rate = 0.1}
optimizer = {plugin = "sgd"}
quantizer = {weights = {plugin = "grid"}}
[study]
name = "small"
[[study.axes]]
name = "bits"
values = [{label = "4", set = {"quantizer.weights.step" = 0.5}}, {label = "2", set = {"quantizer.weights.step" = 1.0}}]
[[study.axes]]
name = "method"
values = [{label = "STE", set = {"method.form" = "off"}}, {label = "CAGE, λ = 1", set = {"method.lambda" = 1.0}}]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2]
[[study.tables]]
title = "Loss"
metric = "val_loss"
rows = ["bits"]
columns = ["method"]
over = ["seed"]
baseline = {method = "STE"}
[[study.figures]]
kind = "differences"
title = "Differences"
metric = "val_loss"
x = "method"
baseline = "STE"
series = ["bits"]
over = ["seed"]
[[study.figures]]
kind = "curves"
metric = "loss"
series = ["bits", "method"]
over = ["seed"]
`

// prepare writes a study and its kept results to a new directory, and changes to it. STE has 2, 2.1
// and 2.2, CAGE 0.4 to 0.6 less, and in 2 bits there is no result. The study's base has some
// changes.
func prepare(t *testing.T, set ...string) *renderer {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("small.toml", []byte(studyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := study.Load("small.toml", set...)
	if err != nil {
		t.Fatal(err)
	}
	f := &snapshot.File{Study: "small", From: "small.toml", Set: set,
		Sources: []snapshot.Source{{Date: "2026-11-21", Revision: "abc"}}}
	for i, loss := range []float64{2, 2.1, 2.2, 1.6, 1.6, 1.6} {
		f.Cells = append(f.Cells,
			snapshot.Cell{ID: s.Cells[i].ID, Programs: "aa",
				Metrics: map[string]metrics.Number{"val_loss": metrics.Number(loss)}})
	}
	if err := f.Write("small.json"); err != nil {
		t.Fatal(err)
	}
	return &renderer{Dir: "."}
}

const inline = `So CAGE is lower by <!-- kept {study = "small", table = 1,
at = {bits = "4", method = "CAGE, λ = 1"}, show = "difference"} -->?<!-- /kept -->.`

func TestNumber(t *testing.T) {
	r := prepare(t)
	for show, want := range map[string]string{"difference": "−0.50 [−0.75, −0.25]",
		"mean": "1.60 ± 0.00", "n": "3"} {
		out, err := r.Render(t.Context(), []byte(strings.Replace(inline, "difference", show, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(out), "-->"+want+"<!-- /kept -->.") {
			t.Errorf("%s: got %s, want %s", show, out, want)
		}
		again, err := r.Render(t.Context(), out)
		if err != nil || string(again) != string(out) {
			t.Errorf("rendered again, it is %s, %v", again, err)
		}
	}
}

// TestSet checks results of a study with changes of its base.
func TestSet(t *testing.T) {
	const table = "<!-- kept {study = \"small\", table = 1} -->\n<!-- /kept -->\n"
	out, err := prepare(t, "train.steps=9").Render(t.Context(), []byte(table))
	if want := "`cage study run small.toml --set train.steps=9`"; err != nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("%v, or the table does not say %s:\n%s", err, want, out)
	}
}

// TestChoice checks that a document can show the chosen label, and that it is an error if the table
// chooses none.
func TestChoice(t *testing.T) {
	const chosen = `<!-- kept {study = "small", table = 1, at = {method = "CAGE, λ = 1"}, show = "choice"} -->?<!-- /kept -->.`
	r := prepare(t)
	if _, err := r.Render(t.Context(),
		[]byte(strings.Replace(chosen, "at = {", `at = {bits = "4", `, 1))); err == nil ||
		!strings.Contains(err.Error(), "does not choose a best setting") {
		t.Errorf("a table without a choice: %v", err)
	}
	text, err := os.ReadFile("small.toml")
	if err != nil {
		t.Fatal(err)
	}
	best := strings.Replace(string(text), `rows = ["bits"]`,
		`best = {axis = "bits", on = {seed = 0}}`, 1)
	if err := os.WriteFile("small.toml", []byte(best), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := (&renderer{Dir: "."}).Render(t.Context(), []byte(chosen))
	if err != nil || !strings.HasSuffix(string(out), "-->4† of 1/2<!-- /kept -->.") {
		t.Errorf("%s, %v", out, err)
	}
}

const table = `Text.

<!-- kept {study = "small", table = 1, where = {bits = "4"}} -->
whatever stood here
<!-- /kept -->

More.
`

func TestTable(t *testing.T) {
	r := prepare(t)
	out, err := r.Render(t.Context(), []byte(table))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Text.\n\n<!-- kept", "<!-- /kept -->\n\nMore.\n",
		"| bits | STE | CAGE, λ = 1 |\n", "\n| 4 | 2.10 ± 0.10 | **1.60 ± 0.00** |\n",
		"\n| 4 | **−0.50 [−0.75, −0.25]** |\n",
		"\n6 of 6 cells of `cage study run small.toml`: revision abc (2026-11-21).\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "whatever") || strings.Contains(string(out), "Stale") {
		t.Errorf("got\n%s", out)
	}
}

// TestDifferences checks that a table can show its differences alone.
func TestDifferences(t *testing.T) {
	out, err := prepare(t).
		Render(t.Context(), []byte(strings.Replace(table, "where", `show = "differences", where`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); !strings.Contains(text, "-->\n| bits | CAGE, λ = 1 |\n| --- | ---: |\n| "+
		"4 | **−0.50 [−0.75, −0.25]** |\n\nDifferences from STE") ||
		strings.Contains(text, "2.10 ± 0.10") {
		t.Errorf("got\n%s", text)
	}
}

// TestNothingYet checks that a table without results has a note in place of its means and another
// in place of its differences.
func TestNothingYet(t *testing.T) {
	out, err := prepare(t).Render(t.Context(), []byte(strings.Replace(table, `"4"`, `"2"`, 1)))
	if text := string(out); err != nil ||
		strings.Count(text, "\nNo cell of this table is done, or none has its metric.\n") != 2 ||
		!strings.Contains(text, "\n0 of 6 cells of `cage study run small.toml`.\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

const picture = "<!-- kept {study = \"small\", figure = 1} -->\nwhatever stood here\n<!-- /kept " +
	"-->\n"

// TestFigure checks that a figure is linked, explained, and drawn from the results to its own file.
func TestFigure(t *testing.T) {
	r := prepare(t)
	out, err := r.Render(t.Context(), []byte(picture))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n![Differences](../pictures/small-1.svg)\n",
		"\nDifferences. Faint: each pair of replicates (seed).", "n = 3.\n",
		"\n6 of 12 cells of `cage study run small.toml`: revision abc"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "whatever") || len(r.Pictures) != 1 ||
		!strings.HasPrefix(string(r.Pictures["../pictures/small-1.svg"]), "<?xml") {
		t.Errorf("got\n%s\nand %d pictures", out, len(r.Pictures))
	}
	some := strings.Replace(picture, "figure = 1", `figure = 1, where = {bits = "4"}`, 1)
	if out, err = r.Render(t.Context(), []byte(some)); err != nil || len(r.Pictures) != 2 ||
		strings.Contains(string(out), "small-1.svg") {
		t.Errorf("a part of it has the same file, or none: %v\n%s", err, out)
	}
	text, err := os.ReadFile("small.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("small.json", []byte(strings.Replace(string(text), "2.2", "2.3", 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	other := &renderer{Dir: "."}
	if _, err := other.Render(t.Context(), []byte(picture)); err != nil ||
		string(other.Pictures["../pictures/small-1.svg"]) == string(
			r.Pictures["../pictures/small-1.svg"]) {
		t.Errorf("changed results make the same picture: %v", err)
	}
}

// TestOrigin checks that a build that revisions share is listed once.
func TestOrigin(t *testing.T) {
	build := func(simd string) []engine.BuildInfo {
		return []engine.BuildInfo{{Device: "cpu", Go: "go1", Target: "linux/amd64", SIMD: simd}}
	}
	got := origin([]snapshot.Source{
		{Revision: "a", Date: "2026-11-21", Builds: build("avx2")},
		{Revision: "b", Date: "2026-11-22", Builds: build("avx512")},
		{Revision: "c", Date: "2026-11-23", Builds: build("avx2")},
		{Revision: "c", Date: "2026-11-23", Builds: build("avx2")},
	})
	if want := "revisions a (2026-11-21), c (2026-11-23), cpu go1 linux/amd64 avx2; revision b " +
		"(2026-11-22), cpu go1 linux/amd64 avx512"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCode checks that code blocks are not changed.
func TestCode(t *testing.T) {
	text := "```markdown\n<!-- kept {study = \"other\", table = 1} -->\nx\n<!-- /kept -->\n```\n"
	out, err := prepare(t).Render(t.Context(), []byte(text))
	if err != nil || string(out) != text {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestByHand checks that numbers changed by hand are corrected, and changed results are shown.
func TestByHand(t *testing.T) {
	r := prepare(t)
	right, err := r.Render(t.Context(), []byte(table))
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(right), "−0.75", "−0.65", 1)
	out, err := r.Render(t.Context(), []byte(wrong))
	if err != nil || string(out) != string(right) || wrong == string(right) {
		t.Errorf("a changed document is rendered as\n%s\n%v", out, err)
	}
	text, err := os.ReadFile("small.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("small.json", []byte(strings.Replace(string(text), "2.2", "2.3", 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	out, err = (&renderer{Dir: "."}).Render(t.Context(), right)
	if err != nil || string(out) == string(right) {
		t.Errorf("changed results leave the document as it is: %v", err)
	}
}

// TestCaveats checks the notes within sentences about missing replicates and stale results.
func TestCaveats(t *testing.T) {
	r := prepare(t)
	f, err := snapshot.Read("small.json")
	if err != nil {
		t.Fatal(err)
	}
	f.Cells = f.Cells[:5]
	if err := f.Write("small.json"); err != nil {
		t.Fatal(err)
	}
	for show, want := range map[string]string{"difference": "(2 of 3 replicates)",
		"mean": "1.60 ± 0.00 (2 of 3 replicates)", "n": "-->2<"} {
		out, err := r.Render(t.Context(), []byte(strings.Replace(inline, "difference", show, 1)))
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %s, %v", show, out, err)
		}
	}
	r = prepare(t)
	r.Survey = func(_ context.Context, list []*config.Config) []config.Finding {
		return make([]config.Finding, len(list))
	}
	out, err := r.Render(t.Context(), []byte(inline))
	if err != nil || !strings.Contains(string(out), "−0.25] (**stale**)<!--") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestStale checks that results whose programs have changed stay, and are marked as stale.
func TestStale(t *testing.T) {
	r := prepare(t)
	r.Survey = func(_ context.Context, list []*config.Config) []config.Finding {
		return make([]config.Finding, len(list))
	}
	out, err := r.Render(t.Context(), []byte(table))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "**Stale:** 6 of the study's runs") ||
		!strings.Contains(string(out), "2.10 ± 0.10") {
		t.Errorf("got\n%s", out)
	}
}

func TestErrors(t *testing.T) {
	number := func(old, new string) string { return "\n" + strings.Replace(inline, old, new, 1) }
	for want, text := range map[string]string{
		"line 2: unpaired comment about kept results": "\n<!-- kept {study = \"small\", " +
			"table = 1} -->\n",
		"line 1: unpaired comment about kept results":   "x <!-- /kept -->",
		"line 2: open other.json":                       number(`"small"`, `"other"`),
		"line 2: table: found 2, but study small has 1": number("table = 1", "table = 2"),
		"line 2: table: found 0":                        number("table = 1", "table = 0"),
		`show: found "median"`:                          number("difference", "median"),
		"figure: found 3, but study small has 2": strings.Replace(picture,
			"figure = 1", "figure = 3", 1),
		"figure: found 1, want a figure number": strings.Replace(picture,
			"figure = 1", "figure = 1, table = 1", 1),
		"figure: found -1": strings.Replace(picture,
			"figure = 1", "figure = -1", 1),
		"curves are drawn from the runs": strings.Replace(picture,
			"figure = 1", "figure = 2", 1),
		"no cell of \"Differences\" is kept": strings.Replace(picture,
			"figure = 1", `figure = 1, where = {bits = "2"}`, 1),
		"figure: want the comment on a separate line": strings.Replace(picture, " -->\n",
			" --> ", 1),
		"at and show are for numbers within a line, not for figures": strings.Replace(picture,
			"figure = 1", `figure = 1, show = "n"`, 1),
		"tables: unknown key; did you mean table?": number("table = 1", "tables = 1"),
		"0 entries of the table":                   number("λ = 1", "λ = 2"),
		"2 entries of the table":                   number(`bits = "4", `, ""),
		"there is no result yet":                   number(`"4"`, `"2"`),
		"has no difference":                        number("CAGE, λ = 1", "STE"),
		"at is for numbers": strings.Replace(table, "where",
			"at", 1),
		`show: found "n", want "differences"`: strings.Replace(table, "where",
			`show = "n", where`, 1),
		`show: found "differences", want "mean"`: number(`"difference"`,
			`"differences"`),
		`the table "Loss" has no differences`: strings.Replace(table,
			`where = {bits = "4"}`, `show = "differences", where = {method = "STE"}`, 1),
		"where.bits: found the integer 4; want a label": strings.Replace(table, `"4"`, "4",
			1),
		`where: the study small has no axis "bit"`: strings.Replace(table, "bits", "bit", 1),
		`where.bits: the axis has no label "8"`:    strings.Replace(table, `"4"`, `"8"`, 1),
	} {
		_, err := prepare(t).Render(t.Context(), []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// FuzzMarks checks that for any document, the marks are in order, within the document, and
// complete.
func FuzzMarks(f *testing.F) {
	for _, text := range []string{
		"",
		"<!-- kept {study = \"a\", table = 1} -->\nx\n<!-- /kept -->\n",
		"x <!-- kept {study = \"a\", table = 2, at = {b = \"c\"}, show = \"n\"} -->3<!-- /kept --> y",
		"<!-- kept {study = \"a\", table = 1, where = {b = [\"c\", \"d\"]}} -->\n<!-- /kept -->",
		"<!-- kept {study = \"a\", figure = 1} -->\nx\n<!-- /kept -->\n",
		"```\n<!-- kept {} -->\n```\n<!-- /kept -->",
		"<!-- kept {study = 1} --><!-- /kept --><!-- kept",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := marks(text)
		if err != nil && len(list) > 0 {
			t.Fatalf("%d marks beside the error %v", len(list), err)
		}
		last := 0
		for _, m := range list {
			if m.start < last || m.end < m.start || m.end > len(text) {
				t.Fatalf("a place from %d to %d after %d, in %d bytes", m.start, m.end, last, len(text))
			}
			if m.Study == "" || (m.Table < 1) == (m.Figure < 1) || !m.alone && m.Show == "" {
				t.Fatalf("incomplete: %+v", m)
			}
			last = m.end
		}
	})
}

// TestNoDocuments checks that a list without documents is an error, as that of git is outside of a
// repository.
func TestNoDocuments(t *testing.T) {
	if err := run(".", "", true, nil); err == nil || !strings.Contains(err.Error(), "no document") {
		t.Errorf("got %v, want an error", err)
	}
}

// TestWhereWidens checks that a comment cannot widen a table that the study file restricts.
func TestWhereWidens(t *testing.T) {
	r := prepare(t)
	write := strings.Replace(studyFile, "baseline = {method = \"STE\"}", "where = {bits = \"4\"}", 1)
	if err := os.WriteFile("small.toml", []byte(write), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := r.Render(t.Context(),
		[]byte(strings.Replace(table, `{bits = "4"}`, `{bits = ["4", "2"]}`, 1)))
	if err == nil || !strings.Contains(err.Error(), `where.bits: the table has no label "2"`) {
		t.Errorf("got %v, want an error about the label 2; the document is\n%s", err, out)
	}
}
