package report_test

import (
	"maps"
	"math"
	"slices"
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

// trained are results with these losses by method, of seeds 0, 1, 2; those that are not given are missing.
func trained(s *study.Study, losses map[string][]float64) []study.Result {
	out := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		out[i] = study.Result{Cell: c, State: study.Missing}
		list, seed := losses[c.Labels["method"]], int(c.Labels["seed"][0]-'0')
		if seed < len(list) {
			out[i] = study.Result{Cell: c, State: study.Done, Summary: map[string]float64{"val_loss": list[seed], "train_seconds": 1}}
			if math.IsNaN(list[seed]) {
				out[i] = study.Result{Cell: c, State: study.Failed, Diverged: true}
			}
		}
	}
	return out
}

// The interval of the mean of 2.0, 2.1, 2.2 is 2.1 ± 4.30265·0.1/√3, 1.852 to 2.348, and that of the
// differences −0.1, −0.2, −0.3 is −0.2 ± 0.248, −0.448 to 0.048.
var before = map[string][]float64{"QuEST": {2.0, 2.1, 2.2}, "CAGE": {1.9, 1.9, 1.9}}

// TestOppositeReplicates: where the best mean lacks a hard seed, the seeds of both may say that another is better. Then nothing says
// that it is clearly worse.
func TestOppositeReplicates(t *testing.T) {
	s := parse(t, again, "")
	tables := report.Tables(s, trained(s, map[string][]float64{"QuEST": {1.0, 2.0}, "CAGE": {0.99, 1.9899, 3.0}}))
	marks := map[report.Mark]float64{}
	for _, e := range tables[0].Entries[0] {
		marks[e.Mark] = e.Mean
	}
	if len(marks) != 2 || marks[report.Best] != 1.5 || marks[report.Untested] == 0 {
		t.Errorf("means by marks: %v", marks)
	}
}

// TestDiverged: a replicate that diverged is not left out of the mean, which is then not the best of its row.
func TestDiverged(t *testing.T) {
	s := parse(t, again, "")
	tables := report.Tables(s, trained(s, map[string][]float64{"QuEST": {2.0, 2.1, 2.2}, "CAGE": {1.0, math.NaN(), 1.0}}))
	quest, cage := tables[0].Entries[0][0], tables[0].Entries[0][1]
	if !math.IsNaN(cage.Mean) || cage.N != 3 || cage.Mark != report.Plain || cage.Difference == nil || cage.Difference.Known() {
		t.Errorf("the method that diverged once: %+v, difference %+v", cage, cage.Difference)
	}
	if quest.Mark == report.Untested || quest.Mean != 2.1 {
		t.Errorf("the other: %+v", quest)
	}
}

func TestAgree(t *testing.T) {
	s := parse(t, again, "")
	type found struct {
		method     string
		difference bool
		n          int
		before     string
		again      string
		place      report.Relation
	}
	for name, test := range map[string]struct {
		before, again       map[string][]float64
		cells, same, values int
		want                []found
	}{
		"the same": {before, before, 6, 6, 3, nil},
		"some are missing here": {before, map[string][]float64{"QuEST": {2.0, 2.1}, "CAGE": {1.9}},
			3, 3, 3, nil},
		"digits that no table shows": {before, map[string][]float64{"QuEST": {2.00001, 2.1, 2.2}, "CAGE": {1.9, 1.9, 1.9}}, 6, 5, 3, nil},
		"inside": {before, map[string][]float64{"QuEST": {2.0, 2.1, 2.5}, "CAGE": {1.9, 1.9, 1.9}}, 6, 5, 3, []found{
			{"QuEST", false, 3, "2.100 [1.852, 2.348]", "2.200", report.Inside},
			{"CAGE", true, 3, "−0.200 [−0.448, +0.048]", "−0.300", report.Inside},
		}},
		"outside": {before, map[string][]float64{"QuEST": {2.4, 2.3, 2.4}, "CAGE": {1.9, 1.9, 1.9}}, 6, 3, 3, []found{
			{"QuEST", false, 3, "2.100 [1.852, 2.348]", "2.367", report.Outside},
			{"CAGE", true, 3, "−0.200 [−0.448, +0.048]", "−0.467", report.Outside},
		}},
		"one replicate": {map[string][]float64{"QuEST": {2.0}}, map[string][]float64{"QuEST": {2.1, 2.2}}, 1, 0, 1, []found{
			{"QuEST", false, 1, "2.000", "2.100", report.Unknown},
		}},
		"diverged then": {map[string][]float64{"QuEST": {2.0, math.NaN()}}, map[string][]float64{"QuEST": {2.0, 2.1}}, 2, 1, 1, []found{
			{"QuEST", false, 2, "NaN", "2.050", report.Outside},
		}},
		"diverged now": {map[string][]float64{"QuEST": {2.0, 2.2}}, map[string][]float64{"QuEST": {2.0, math.Inf(1)}}, 2, 1, 1, []found{
			{"QuEST", false, 2, "2.100 [0.829, 3.371]", "∞", report.Outside},
		}},
		"diverged twice":  {map[string][]float64{"QuEST": {2.0, math.NaN()}}, map[string][]float64{"QuEST": {2.0, math.NaN()}}, 2, 2, 1, nil},
		"nothing in both": {map[string][]float64{"QuEST": {2.0}}, map[string][]float64{"CAGE": {2.0}}, 0, 0, 0, nil},
	} {
		a := report.Agree(s, trained(s, test.before), trained(s, test.again))
		var got []found
		for _, d := range a.Others {
			got = append(got, found{d.Labels["method"], d.Difference, d.N, d.Before, d.Again, d.Relation})
		}
		if a.Cells != test.cells || a.Same != test.same || a.Values != test.values || !slices.Equal(got, test.want) {
			t.Errorf("%s: %d cells, %d the same, %d values, and\n%+v, want %d, %d, %d and\n%+v",
				name, a.Cells, a.Same, a.Values, got, test.cells, test.same, test.values, test.want)
		}
	}
}

// TestAgreeNumbers: times differ, and another version may have more numbers or fewer.
func TestAgreeNumbers(t *testing.T) {
	s := parse(t, again, "")
	for name, test := range map[string]struct {
		change func(map[string]float64)
		same   int
	}{
		"a time":      {func(m map[string]float64) { m["train_seconds"] = 9 }, 1},
		"one more":    {func(m map[string]float64) { m["tokens"] = 9 }, 1},
		"one less":    {func(m map[string]float64) { delete(m, "lambda") }, 1},
		"none shared": {func(m map[string]float64) { clear(m); m["train_seconds"], m["tokens"] = 1, 9 }, 0},
		"one less, and one that differs": {func(m map[string]float64) {
			delete(m, "lambda")
			m["error_rel"] = math.Nextafter(0.5, 1)
		}, 0},
		"one that differs": {func(m map[string]float64) { m["error_rel"] = math.Nextafter(0.5, 1) }, 0},
		"NaN now":          {func(m map[string]float64) { m["error_rel"] = math.NaN() }, 0},
	} {
		x, y := trained(s, map[string][]float64{"QuEST": {2}}), trained(s, map[string][]float64{"QuEST": {2}})
		for _, list := range [][]study.Result{x, y} {
			for i := range list {
				if list[i].Summary != nil {
					list[i].Summary["error_rel"], list[i].Summary["lambda"] = 0.5, 10
				}
			}
		}
		for i := range y {
			if y[i].Summary != nil {
				y[i].Summary = maps.Clone(y[i].Summary)
				test.change(y[i].Summary)
			}
		}
		a := report.Agree(s, x, y)
		if a.Same != test.same {
			t.Errorf("%s: %d cells are the same, want %d", name, a.Same, test.same)
		}
	}
}
