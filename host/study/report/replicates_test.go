package report_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
)

const again = base + `
[study]
name = "again"
[[study.axes]]
name = "method"
values = [{label = "QuEST", set = {"method.form" = "off"}}, {label = "CAGE", set = {}}]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2]
[[study.tables]]
title = "Loss"
columns = ["method"]
over = ["seed"]
baseline = {method = "QuEST"}
format = "%%.3f"
`

// trained returns results with these losses by method, for seeds 0, 1, 2. NaN means diverged. Cells
// without a loss are missing.
func trained(s *study.Study, losses map[string][]float64) []study.Result {
	out := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		out[i] = study.Result{Cell: c, State: study.Missing}
		list, seed := losses[c.Labels["method"]], int(c.Labels["seed"][0]-'0')
		if seed < len(list) {
			out[i] = study.Result{Cell: c, State: study.Done,
				Summary: map[string]float64{"val_loss": list[seed], "train_seconds": 1}}
			if math.IsNaN(list[seed]) {
				out[i] = study.Result{Cell: c, State: study.Failed, Diverged: true}
			}
		}
	}
	return out
}

// TestOppositeReplicates checks an entry that is better than the best mean on their common seeds,
// because the best mean lacks a hard seed. It is marked as untested, not as clearly worse.
func TestOppositeReplicates(t *testing.T) {
	s := parse(t, again, "")
	tables := report.Tables(s,
		trained(s, map[string][]float64{"QuEST": {1.0, 2.0}, "CAGE": {0.99, 1.9899, 3.0}}))
	marks := map[report.Mark]float64{}
	for _, e := range tables[0].Entries[0] {
		marks[e.Mark] = e.Mean
	}
	if len(marks) != 2 || marks[report.Best] != 1.5 || marks[report.Untested] == 0 {
		t.Errorf("means by marks: %v", marks)
	}
}

// TestDiverged checks that a diverged replicate is not left out of the mean, which is then not the
// best of its row.
func TestDiverged(t *testing.T) {
	s := parse(t, again, "")
	tables := report.Tables(s,
		trained(s, map[string][]float64{"QuEST": {2.0, 2.1, 2.2}, "CAGE": {1.0, math.NaN(), 1.0}}))
	quest, cage := tables[0].Entries[0][0], tables[0].Entries[0][1]
	if !math.IsNaN(cage.Mean) || cage.N != 3 || cage.Mark != report.Plain || cage.Difference == nil ||
		cage.Difference.HasInterval() {
		t.Errorf("the method that diverged once: %+v, difference %+v", cage, cage.Difference)
	}
	if quest.Mark == report.Untested || quest.Mean != 2.1 {
		t.Errorf("the other: %+v", quest)
	}
}
