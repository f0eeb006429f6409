package report_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/study/stat"
)

const paired = again + `
[[study.figures]]
kind = "differences"
metric = "val_loss"
x = "method"
baseline = "QuEST"
over = ["seed"]
`

// TestDifferences: pairs are those of the replicates that both labels have, and a figure says how many there are.
func TestDifferences(t *testing.T) {
	s := parse(t, paired, t.TempDir())
	r, err := report.New(s, trained(s, map[string][]float64{"QuEST": {2.0, 2.25, 2.5}, "CAGE": {1.75, 2.125}}))
	if err != nil {
		t.Fatal(err)
	}
	f, d := r.Figures[0], stat.Pair([]float64{1.75, 2.125}, []float64{2, 2.25}, stat.Level)
	want := &figure.Differences{X: figure.Axis{Label: "difference of validation loss to QuEST"}, Rows: []string{""},
		Series: []figure.DifferenceSeries{{Name: "CAGE", Rows: []figure.PairDifferences{{Each: []float64{-0.25, -0.125}, Mean: d.Mean, Low: d.Low, High: d.High}}}}}
	if diff := cmp.Diff(want, f.Picture); diff != "" {
		t.Errorf("the picture (-want +got):\n%s", diff)
	}
	if f.Title != "validation loss: difference to QuEST" || len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "replicates (seed)") || !strings.Contains(f.Notes[0], "n = 2") {
		t.Errorf("title %q, notes %q", f.Title, f.Notes)
	}
	// One pair has no interval.
	r, err = report.New(s, trained(s, map[string][]float64{"QuEST": {2.0}, "CAGE": {1.75}}))
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	want.Series[0].Rows = []figure.PairDifferences{{Each: []float64{-0.25}, Mean: -0.25, Low: nan, High: nan}}
	if diff := cmp.Diff(want, r.Figures[0].Picture, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the picture of one pair (-want +got):\n%s", diff)
	}
	// Without a pair there is no picture.
	if r, err = report.New(s, trained(s, map[string][]float64{"QuEST": {2.0, 2.1}})); err != nil || !r.Figures[0].Empty() {
		t.Errorf("a picture of nothing, %v", err)
	}
	// Two replicates in one place.
	s.Figures[0].Over = nil
	if _, err := report.New(s, trained(s, before)); err == nil || !strings.Contains(err.Error(), `seed = "0" and "1" fall into the same place`) {
		t.Errorf("replicates in one place: %v", err)
	}
}
