package study

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/metrics"
)

func TestTablesAndFigures(t *testing.T) {
	s := loaded(t, small+`
[[study.tables]]
title = "Loss"
metric = "distance"
rows = ["rate"]
columns = "method"
over = ["seed"]
baseline = {method = "STE"}
better = "higher"
where = {rate = [3e-3, "high"]}
format = "%.2e"
[[study.tables]]
rows = "method"
over = "seed"
where = {rate = "high"}
[[study.figures]]
kind = "bar"
metric = "val_loss"
x = "rate"
series = ["method"]
over = ["seed"]
logy = true
[[study.figures]]
kind = "curves"
title = "Curves"
metric = "loss"
series = ["method", "rate"]
where = {seed = 0}
logx = true
[[study.figures]]
kind = "heatmap"
metric = "val_loss"
x = "rate"
y = "method"
over = "seed"
[[study.figures]]
kind = "scatter"
x = "error_rel"
y = "val_loss"
[[study.figures]]
kind = "trajectories"
series = "method"
[[study.figures]]
kind = "differences"
metric = "val_loss"
x = "method"
baseline = "STE"
series = "rate"
over = "seed"
`)
	tables := []Table{
		{Title: "Loss", Metric: "distance", Rows: []string{"rate"}, Columns: []string{"method"},
			Over: []string{"seed"}, Better: "higher",
			Baseline: map[string]string{"method": "STE"},
			Where:    map[string][]string{"rate": {"3e-3", "high"}}, Format: "%.2e"},
		{Title: "validation loss", Metric: "val_loss", Rows: []string{"method"}, Over: []string{"seed"},
			Better: "lower", Where: map[string][]string{"rate": {"high"}}},
	}
	if diff := cmp.Diff(tables, s.Tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	figures := []Figure{
		{Kind: Bar, Metric: "val_loss", X: "rate", Series: []string{"method"}, Over: []string{"seed"},
			LogY: true},
		{Kind: Curves, Title: "Curves", Metric: "loss", Series: []string{"method", "rate"},
			Where: map[string][]string{"seed": {"0"}}, LogX: true},
		{Kind: Heatmap, Metric: "val_loss", X: "rate", Y: "method", Over: []string{"seed"}},
		{Kind: Scatter, X: "error_rel", Y: "val_loss"},
		{Kind: Trajectories, Series: []string{"method"}},
		{Kind: Differences, Metric: "val_loss", X: "method", Baseline: "STE", Series: []string{"rate"},
			Over: []string{"seed"}},
	}
	if diff := cmp.Diff(figures, s.Figures); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if none := loaded(t, strings.Replace(small, "[study]", "[study]\ntables = []", 1)); len(
		none.Tables) != 0 {
		t.Errorf("tables %+v, want none", none.Tables)
	}
}

func TestMetricNames(t *testing.T) {
	for list, some := range map[string][]string{
		strings.Join(SummaryMetrics(), " "): {"val_loss", "val_ppl", "error_rel", "steps", "train_loss"},
		strings.Join(RecordMetrics(), " "):  {"loss", "val_loss", "lr", "lambda", "pareto", "step"},
	} {
		for _, name := range some {
			if !strings.Contains(" "+list+" ", " "+name+" ") {
				t.Errorf("%s is not in %s", name, list)
			}
		}
		if strings.Contains(list, "second") {
			t.Errorf("%s has times or speeds, which no run repeats", list)
		}
	}
}

// TestDivergedIsKnown checks that a failed cell whose training diverged, which is a result, is told
// apart from other failed cells.
func TestDivergedIsKnown(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "base.toml"), base)
	s := parsed(t, filepath.Join(dir, "study.toml"), small)
	s.Out = filepath.Join(dir, "out")
	c := s.Cells[0]
	dir = s.dir(c).Name
	for stopped, known := range map[metrics.Stop]bool{metrics.Diverged: true, metrics.Failed: false} {
		write(t, filepath.Join(dir, failedFile), `{"error": "why"}`)
		if err := metrics.WriteSummary(s.run(c).Summary(),
			metrics.Summary{Stopped: stopped}); err != nil {
			t.Fatal(err)
		}
		if r := s.readCellResult(c, false); r.State != Failed || r.Err != "why" || r.Diverged != known ||
			r.HasOutcome() != known || r.Trained() {
			t.Errorf("%s: %+v", stopped, r)
		}
	}
}
