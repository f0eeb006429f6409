package report_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
)

// one has a reference with a single run for all seeds, and a table that has only its baseline.
const one = base + `
[study]
name = "one"
out = "%s"
[[study.axes]]
name = "method"
values = [{label = "[a]", set = {method.lambda = 1.0}}]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2]
[[study.cells]]
label = {method = "full"}
set = {method.form = "off", seed = 0}
[[study.tables]]
title = "Loss"
rows = ["method"]
over = ["seed"]
[[study.tables]]
title = "Difference"
columns = ["method"]
over = ["seed"]
baseline = {method = "full"}
[[study.tables]]
title = "Alone"
columns = ["method"]
over = ["seed"]
where = {method = ["full"]}
baseline = {method = "full"}
`

// TestOneRunOnce checks that a run that several cells share is one replicate, without an interval;
// that LaTeX does not read labels in brackets as options; and that a table with only its baseline
// has no differences.
func TestOneRunOnce(t *testing.T) {
	s := parse(t, one, t.TempDir())
	ids := map[string]bool{}
	var list []study.Result
	for i, c := range s.Cells {
		ids[c.ID] = true
		loss := 2.0 + 0.1*float64(i)
		if c.Labels["method"] == "full" {
			loss = 1.5
		}
		list = append(list, study.Result{Cell: c, State: study.Done,
			Summary: map[string]float64{"val_loss": loss}})
	}
	if len(ids) != 4 {
		t.Fatalf("%d runs", len(ids))
	}
	r := newReport(t, s, list)
	if e := r.Tables[0].Entries[1][0]; e.N != 1 || e.Expected != 1 || e.Mean != 1.5 {
		t.Errorf("the reference: %+v", e)
	}
	if e := r.Tables[1].Entries[0][0]; e.N != 3 || e.Difference.N != 1 || e.Difference.HasInterval() {
		t.Errorf("compared with it: %+v, %+v", e, e.Difference)
	}
	if text := string(r.LaTeX()); !strings.Contains(text, "\n{}[a] & ") {
		t.Errorf("a row begins with a bracket:\n%s", text)
	}
	if page, err := r.HTML(); err != nil || strings.Contains(string(page), "Alone: difference") {
		t.Errorf("the page: %v", err)
	}
}

// TestPlaces checks that Find returns an entry of one run, but not one without results, which
// documents would show as NaN.
func TestPlaces(t *testing.T) {
	s := parse(t, one, t.TempDir())
	list := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		list[i] = study.Result{Cell: c, State: study.Missing}
		if c.Labels["method"] == "full" {
			list[i] = study.Result{Cell: c, State: study.Done, Summary: map[string]float64{"val_loss": 1.5}}
		}
	}
	tables := report.Tables(s, list)
	if p, err := tables[0].Find(map[string]string{"method": "full"}); err != nil || p.N != 1 ||
		!strings.HasPrefix(tables[0].MeanText(p), "1.5") {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := tables[0].Find(map[string]string{"method": "[a]"}); err == nil ||
		!strings.Contains(err.Error(), "there is no result yet") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestCorrected checks that ‡ marks only those differences whose intervals exclude zero even with
// Holm's correction.
func TestCorrected(t *testing.T) {
	s := parse(t, strings.Replace(again, `{label = "CAGE", set = {}}`,
		`{label = "CAGE", set = {}}, {label = "other", set = {"method.lambda" = 3.0}}`, 1), "")
	// Three differences −0.9, −1, −1.1 have t = 17.3 and P = 0.003; −0.7, −1, −1.3 have t = 5.8 and P
	// = 0.029.
	for _, test := range []struct {
		cage, other float64 // half the range of the replicates
		want        string
	}{
		{0.1, 0.3, "| **−1.000 [−1.248, −0.752] ‡** | **−1.000 [−1.745, −0.255] ‡** |\n\n"},
		{0.1, 0.3, "of which 0.1 of 2 would leave out zero by chance. Bold: zero is left out. ‡: also " +
			"with Holm's correction.\n"},
		{0.1, 0.45, "| **−1.000 [−1.248, −0.752] ‡** | −1.000 [−2.118, +0.118] |\n\n"},
		{0.3, 0.3, "| **−1.000 [−1.745, −0.255]** | **−1.000 [−1.745, −0.255]** |\n\n"},
		{0.3, 0.3, "Bold: zero is left out. With Holm's correction none is.\n"},
	} {
		losses := map[string][]float64{"QuEST": {2, 2, 2}, "CAGE": {1 + test.cage, 1, 1 - test.cage},
			"other": {1 + test.other, 1, 1 - test.other}}
		tables := report.Tables(s, trained(s, losses))
		if got := string(tables[0].Markdown(false)); !strings.Contains(got, test.want) {
			t.Errorf("without %q:\n%s", test.want, got)
		}
	}
}
