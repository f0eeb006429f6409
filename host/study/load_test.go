package study

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const base = `
[model]
kind = "quadratic"
[train]
steps = 10
[schedule]
rate = 0.1
[quantizer.weights]
plugin = "quest"
bits = 4
`

const small = `
base = "base.toml"
[study]
[[study.axes]]
name = "method"
values = [
  {label = "STE", set = {method.form = "off"}},
  {label = "CAGE", set = {"method.lambda" = 2.0}},
]
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [3e-3, {label = "high", value = 0.1, set = {schedule.floor = 0}}]
[[study.axes]]
name = "seed"
key = ["seed", "model.problem_seed"]
values = [0, 1]
`

// in changes to a new directory with the base and the study.
func in(t testing.TB, study string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "base.toml"), base)
	write(t, filepath.Join(dir, "small.toml"), study)
	t.Chdir(dir)
}

func loaded(t testing.TB, text string) *Study {
	t.Helper()
	in(t, text)
	return parsed(t, "small.toml", text)
}

func parsed(t testing.TB, path, text string) *Study {
	t.Helper()
	s, err := Parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(s *Study) []string {
	var list []string
	for _, c := range s.Cells {
		list = append(list, s.Label(c))
	}
	return list
}

func TestGrid(t *testing.T) {
	s := loaded(t, small)
	want := []string{
		"STE · 3e-3 · 0", "STE · 3e-3 · 1", "STE · high · 0", "STE · high · 1",
		"CAGE · 3e-3 · 0", "CAGE · 3e-3 · 1", "CAGE · high · 0", "CAGE · high · 1",
	}
	if diff := cmp.Diff(want, names(s)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if s.Name != "small" || s.Out != "studies/small" {
		t.Errorf("name %q, out %q", s.Name, s.Out)
	}
	c := s.Cells[7].Config
	if c.Method.CAGE.Lambda != 2 || c.Schedule.Rate != 0.1 || c.Schedule.Floor != 0 || c.Seed != 1 ||
		c.Model.ProblemSeed != 1 {
		t.Errorf("the last cell has %+v", c)
	}
	if c := s.Cells[0].Config; c.Method.CAGE.Form != "off" || c.Schedule.Rate != 0.003 || c.Seed != 0 {
		t.Errorf("the first cell has %+v", c)
	}
	wantSet := []Setting{
		{"method.lambda", "2.0"}, {"schedule.rate", "0.1"}, {"schedule.floor", "0"}, {"seed", "1"},
		{"model.problem_seed", "1"},
	}
	if diff := cmp.Diff(wantSet, s.Cells[7].Set); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	for _, c := range s.Cells {
		if c.Config.Train.Out != c.Dir || c.Dir != filepath.Join("studies/small/cells", c.ID) {
			t.Errorf("%s: train.out %q, dir %q", c.ID, c.Config.Train.Out, c.Dir)
		}
		if !strings.HasPrefix(c.ID, slug(s.Label(c))+"-") {
			t.Errorf("%s has the directory %s", s.Label(c), c.ID)
		}
	}
	wantTable := []Table{{Title: "validation loss", Metric: "val_loss", Better: "lower",
		Rows: []string{"method"}, Columns: []string{"rate"}, Over: []string{"seed"}}}
	if diff := cmp.Diff(wantTable, s.Tables); diff != "" {
		t.Errorf("default table (-want +got):\n%s", diff)
	}
}

// TestExcludedAndSingleCells checks that cells can be excluded from the grid and added to it. A
// single cell gets all labels of an axis that it omits, and applies the settings of known labels.
func TestExcludedAndSingleCells(t *testing.T) {
	s := loaded(t, small+`
[[study.exclude]]
method = "CAGE"
rate = ["high"]
[[study.exclude]]
seed = 1
method = ["STE"]
[[study.cells]]
label = {method = "full precision", rate = "high"}
set = {"quantizer.weights.plugin" = "none", "schedule.rate" = 0.2}
`)
	want := []string{
		"STE · 3e-3 · 0", "STE · high · 0", "CAGE · 3e-3 · 0", "CAGE · 3e-3 · 1",
		"full precision · high · 0", "full precision · high · 1",
	}
	if diff := cmp.Diff(want, names(s)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	c := s.Cells[5].Config
	if c.Quantizer.Weights != nil || c.Schedule.Rate != 0.2 || c.Schedule.Floor != 0 || c.Seed != 1 {
		t.Errorf("the last cell has %+v", c)
	}
	if a, _ := s.Axis("method"); !cmp.Equal(a.Labels, []string{"STE", "CAGE", "full precision"}) {
		t.Errorf("labels %q", a.Labels)
	}
}

// TestListOfCells checks that a study needs no grid, and that its file may contain the base.
func TestListOfCells(t *testing.T) {
	in(t, `
[base]
train = {steps = 3}
model.kind = "toy"
[base.schedule]
rate = 1
[study]
name = "list"
out = "elsewhere/list/"
parallel = 3
[[study.axes]]
name = "what"
[[study.cells]]
label.what = "short"
[[study.cells]]
label = {what = "long"}
[study.cells.set]
train.steps = 30
[study.cells.set.schedule]
kind = "constant"
`)
	s, err := Load("small.toml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"short", "long"}, names(s)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if s.Name != "list" || s.Out != "elsewhere/list" || s.Parallel != 3 {
		t.Errorf("%+v", s)
	}
	want := []Setting{{"train.steps", "30"}, {"schedule.kind", `"constant"`}}
	if diff := cmp.Diff(want, s.Cells[1].Set); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if c := s.Cells[1].Config; c.Train.Steps != 30 || c.Schedule.Kind != "constant" {
		t.Errorf("the second cell has %+v", c)
	}
}

// TestSettingsOfTables checks that tables and elements of arrays of tables can be set as by --set.
func TestSettingsOfTables(t *testing.T) {
	s := loaded(t, `
base = "base.toml"
[study]
[[study.axes]]
name = "q"
values = [
  {label = "lsq", set = {"quantizer.weights" = {plugin = "lsq", bits = 3}}},
  {label = "override", set = {"quantizer.overrides[0]" = {match = "x", plugin = "none"}, "quantizer.overrides[0].role" = "weights"}},
]
`)
	if w := s.Cells[0].Config.Quantizer.Weights; w.Name != "lsq" || len(w.Params) != 1 ||
		w.Params["bits"] != int64(3) {
		t.Errorf("weights %+v", w)
	}
	if o := s.Cells[1].Config.Quantizer.Overrides; len(o) != 1 || o[0].Role != "weights" ||
		o[0].Plugin != nil {
		t.Errorf("overrides %+v", o)
	}
	if got, want := s.Cells[1].Set[0].Value, `{match = "x", plugin = "none"}`; got != want {
		t.Errorf("setting %s, want %s", got, want)
	}
}

// TestCellsAreKnownByTheirConfiguration checks that cells of equal configuration share a run, and
// that a cell keeps its directory when its label changes.
func TestCellsAreKnownByTheirConfiguration(t *testing.T) {
	s := loaded(t, small+`
[[study.cells]]
label = {method = "the base", rate = "3e-3"}
set = {method.form = "off", train.checkpoint_every = 3, train.keep = 7, device.threads = 1}
`)
	byLabel := map[string]Cell{}
	for _, c := range s.Cells {
		byLabel[s.Label(c)] = c
	}
	if a, b := byLabel["STE · 3e-3 · 1"], byLabel["the base · 3e-3 · 1"]; a.ID != b.ID ||
		a.Dir != b.Dir {
		t.Errorf("%s and %s", a.ID, b.ID)
	}
	before := byLabel["CAGE · high · 1"]
	if err := os.MkdirAll(before.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	again := parsed(t, "small.toml", strings.ReplaceAll(small, `"CAGE"`, `"with CAGE"`))
	if c := again.Cells[7]; again.Label(c) != "with CAGE · high · 1" || c.ID != before.ID {
		t.Errorf("%s has %s, want %s", again.Label(c), c.ID, before.ID)
	}
	if c := again.Cells[6]; !strings.HasPrefix(c.ID, "with-CAGE-high-0-") {
		t.Errorf("%s has %s", again.Label(c), c.ID)
	}
}

// TestNamesOfCellsDoNotCollide checks that non-ASCII letters are written in ASCII in names, and
// that cells with equal or truncated names have different directories.
func TestNamesOfCellsDoNotCollide(t *testing.T) {
	long := strings.Repeat("very ", 20)
	s := loaded(t, `base = "base.toml"
[study]
[[study.axes]]
name = "label"
values = [
  {label = "λ", set = {seed = 1}}, {label = "μ", set = {seed = 2}}, {label = "日本", set = {seed = 3}}, {label = "中国", set = {seed = 4}},
  {label = "café", set = {seed = 5}}, {label = "cafe", set = {seed = 6}}, {label = "`+long+`long", set = {seed = 7}}, {label = "`+long+`short", set = {seed = 8}},
]
`)
	want := []string{"lambda", "mu", "u65e5u672c", "u4e2du56fd", "cafe", "cafe"}
	dirs := map[string]string{}
	for i, c := range s.Cells {
		if other, ok := dirs[c.Dir]; ok {
			t.Errorf("%s and %s have the directory %s", other, s.Label(c), c.Dir)
		}
		dirs[c.Dir] = s.Label(c)
		if i < len(want) && !strings.HasPrefix(c.ID, want[i]+"-") {
			t.Errorf("%s has the name %s, want %s-…", s.Label(c), c.ID, want[i])
		}
	}
	if len(dirs) != 8 {
		t.Errorf("%d directories, want 8", len(dirs))
	}
}

func TestSlug(t *testing.T) {
	for text, want := range map[string]string{
		"CAGE · 4 · 0":              "CAGE-4-0",
		"full precision (λ = 2)":    "full-precision-lambda-2",
		"../..":                     "cell",
		"·":                         "cell",
		"3e-3":                      "3e-3",
		".hidden":                   "hidden",
		strings.Repeat("long ", 50): strings.TrimSuffix(strings.Repeat("long-", 16), "-"),
	} {
		if got := slug(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
