package report_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/vfs"
)

const paired = again + `
[[study.figures]]
kind = "differences"
metric = "val_loss"
x = "method"
baseline = "QuEST"
over = ["seed"]
`

// TestDifferences checks that only replicates that both labels have are paired, and that a note
// gives their number.
func TestDifferences(t *testing.T) {
	s := parse(t, paired, t.TempDir())
	r := newReport(t, s,
		trained(s, map[string][]float64{"QuEST": {2.0, 2.25, 2.5}, "CAGE": {1.75, 2.125}}))
	f, d := r.Figures[0], study.Pair([]float64{1.75, 2.125}, []float64{2, 2.25}, study.Level)
	want := &figure.Differences{X: figure.Axis{Label: "difference of validation loss to QuEST"},
		Rows: []string{""},
		Series: []figure.DifferenceSeries{
			{Name: "CAGE", Rows: []figure.PairDifferences{{Each: []float64{-0.25, -0.125}, Mean: d.Mean,
				Low: d.Low, High: d.High}}}}}
	if diff := cmp.Diff(want, f.Picture, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the picture (-want +got):\n%s", diff)
	}
	if f.Title != "validation loss: difference to QuEST" || len(f.Notes) != 1 ||
		!strings.Contains(f.Notes[0], "replicates (seed)") || !strings.HasSuffix(f.Notes[0],
		" n = 2. Without bars: fewer than three pairs.") {
		t.Errorf("title %q, notes %q", f.Title, f.Notes)
	}
	// One pair has no interval.
	r = newReport(t, s, trained(s, map[string][]float64{"QuEST": {2.0}, "CAGE": {1.75}}))
	nan := math.NaN()
	want.Series[0].Rows = []figure.PairDifferences{{Each: []float64{-0.25}, Mean: -0.25, Low: nan,
		High: nan}}
	if diff := cmp.Diff(want, r.Figures[0].Picture, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the picture of one pair (-want +got):\n%s", diff)
	}
	// Without a pair there is no picture.
	if r = newReport(t, s,
		trained(s, map[string][]float64{"QuEST": {2.0, 2.1}})); !r.Figures[0].Empty() {
		t.Error("a picture of nothing")
	}
}

// TestNothingIsDone checks a report that is written before any cell is done.
func TestNothingIsDone(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "bits"))
	r := reportOf(t, s)
	files, err := r.Save(vfs.At(t.TempDir()))
	if err != nil || !slices.Equal(files, []string{"report.md", "report.tex", "index.html"}) {
		t.Errorf("files %v, %v", files, err)
	}
	if text := string(r.Markdown()); !strings.Contains(text, "0 of 19 cells are done, 19 missing.") ||
		!strings.Contains(text,
			"No cell of this figure is done, or none has a value that can be drawn.") ||
		!strings.Contains(text, "No cell of this table is done, or none has its metric.") {
		t.Errorf("the report says\n%s", text)
	}
}

// TestEveryRunDiverged checks that figures without drawable values are empty, and that the rest of
// the report is written.
func TestEveryRunDiverged(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "bits"))
	for i, c := range s.Cells {
		run(t, c, math.Inf(1), uint64(i))
	}
	r := reportOf(t, s)
	empty := 0
	for _, f := range r.Figures {
		if f.Empty() {
			empty++
		}
	}
	files, err := r.Save(vfs.At(t.TempDir()))
	if err != nil || !slices.Contains(files, "index.html") || empty < 3 ||
		len(files) != 3+3*(len(r.Figures)-empty) {
		t.Errorf("files %v with %d of %d figures empty, %v", files, empty, len(r.Figures), err)
	}
}

const afterwards = `
[base]
model = {layers = 1, width = 16, heads = 2, context = 8}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 1}
schedule = {rate = 1e-3}
quantizer = {plugin = "absmax"}
[study]
out = "%s"
[[study.axes]]
name = "method"
values = [{label = "full", set = {quantizer = {plugin = "none"}}}, {label = "RTN", quantize = {method = "rtn", windows = 0}}]
[[study.figures]]
kind = "curves"
metric = "loss"
series = ["method"]
`

// TestCurvesOfQuantized checks that cells quantized after training are in tables but have no curve.
func TestCurvesOfQuantized(t *testing.T) {
	s := parse(t, afterwards, t.TempDir())
	results := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		results[i] = study.Result{Cell: c, State: study.Done, Summary: map[string]float64{"val_loss": 2}}
	}
	write(t, s.Cells[0].Run, "metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n")
	r := newReport(t, s, results)
	if len(r.Unreadable) > 0 || r.Tables[0].Entries[0][0].N != 1 || r.Tables[0].Entries[1][0].N != 1 {
		t.Errorf("left out: %v; entries %+v", r.Unreadable, r.Tables[0].Entries)
	}
	if points := r.Figures[0].Picture.(*figure.Chart).Series[0].Points; len(points) != 1 ||
		points[0].Y != 2.5 {
		t.Errorf("the curve of the trained cell is %v", points)
	}
}

// TestCurvesOfDiverged checks that a cell that was not trained, because the model that it starts
// from diverged, counts as diverged in tables rather than as damaged, although it has no curve.
func TestCurvesOfDiverged(t *testing.T) {
	s := parse(t, strings.Replace(afterwards, `quantize = {method = "rtn", windows = 0}`,
		`init = {method = "full"}`, 1), t.TempDir())
	run(t, s.Cells[0], math.NaN(), 0)
	r := reportOf(t, s)
	if e := r.Tables[0].Entries[1][0]; len(r.Unreadable) > 0 || e.N != 1 || e.Mean == e.Mean {
		t.Errorf("left out: %v; the entry of the cell that was not trained is %+v", r.Unreadable, e)
	}
}
