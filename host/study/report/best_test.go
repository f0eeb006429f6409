package report_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/report"
)

const rates = base + `
[study]
name = "rates"
out = "rates"
[[study.axes]]
name = "optimizer"
values = [{label = "AdamW", set = {}}, {label = "SOAP", set = {"optimizer.plugin" = "soap"}}]
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [1e-2, 1e-3, 1e-1]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2, 3]
[[study.tables]]
title = "Shared"
columns = ["optimizer"]
over = ["seed"]
baseline = {optimizer = "AdamW"}
where = {rate = "1e-2", seed = [2, 3]}
[[study.tables]]
title = "Own"
columns = ["optimizer"]
over = ["seed"]
baseline = {optimizer = "AdamW"}
best = {axis = "rate", on = {seed = [0, 1]}}
`

// tuned holds losses for seeds 0 to 3. SOAP is worse at AdamW's best rate, and better at its own.
var tuned = map[string][]float64{
	"AdamW 1e-3": {2.5, 2.6, 2.5, 2.5}, "AdamW 1e-2": {2.1, 2.2, 2.15, 2.25},
	"AdamW 1e-1": {3, 3, 3, 3},
	"SOAP 1e-3":  {2.9, 2.9, 2.9, 2.9}, "SOAP 1e-2": {2.6, 2.7, 2.5, 2.7},
	"SOAP 1e-1": {1.9, 2.1, 2.0, 2.2},
}

// ended returns results of cells with these losses. Cells without a loss are missing.
func ended(s *study.Study, losses map[string][]float64) []study.Result {
	list := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		list[i] = study.Result{Cell: c, State: study.Missing}
		seed := int(c.Labels["seed"][0] - '0')
		if of := losses[c.Labels["optimizer"]+" "+c.Labels["rate"]]; seed < len(of) {
			list[i].State, list[i].Summary = study.Done,
				map[string]float64{"val_loss": of[seed], "train_loss": -of[seed]}
			if math.IsNaN(of[seed]) {
				list[i].State, list[i].Summary, list[i].Diverged = study.Failed, nil, true
			}
		}
	}
	return list
}

func bestOf(t testing.TB, text string, losses map[string][]float64) *report.Report {
	t.Helper()
	s := parse(t, text, "")
	r := newReport(t, s, ended(s, losses))
	return r
}

// with returns tuned with some losses replaced.
func with(change map[string][]float64) map[string][]float64 {
	out := map[string][]float64{}
	for _, m := range []map[string][]float64{tuned, change} {
		for name, x := range m {
			out[name] = x
		}
	}
	return out
}

// TestBestOverAnAxis checks that rates chosen for each optimizer reverse the result of a shared
// rate. The seeds that choose are not reported, and the paired differences are those of the others.
func TestBestOverAnAxis(t *testing.T) {
	r := bestOf(t, rates, tuned)
	shared, own := r.Tables[0].Entries[0], r.Tables[1].Entries[0]
	if d := shared[1].Difference; shared[0].Mark != report.Best || math.Abs(d.Mean-0.4) > 1e-12 {
		t.Errorf("at a shared rate: %+v", shared)
	}
	if d := own[1].Difference; own[1].Mark != report.Best || d.N != 2 || math.Abs(d.Mean+0.1) > 1e-12 {
		t.Errorf("at its own rate: %+v, %+v", own, d)
	}
	if own[0].N != 2 || own[0].Expected != 2 || math.Abs(own[0].Mean-2.2) > 1e-12 ||
		math.Abs(own[1].Mean-2.1) > 1e-12 {
		t.Errorf("reported is %+v", own)
	}
	want := []*report.Choice{{Label: "1e-2", Tried: 3, Of: 3},
		{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3}}
	if diff := cmp.Diff(want, []*report.Choice{own[0].Choice, own[1].Choice}); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	// Reported seeds do not affect the choice, and seeds that choose do not affect the numbers.
	again := bestOf(t, rates,
		with(map[string][]float64{"AdamW 1e-3": {2.5, 2.6, 0, 0},
			"SOAP 1e-1": {1.1, 1.2, 2.0, 2.2}})).Tables[1].Entries[0]
	if again[0].Choice.Label != "1e-2" || again[0].Mean != own[0].Mean ||
		again[1].Mean != own[1].Mean ||
		!cmp.Equal(again[1].Difference, own[1].Difference, cmpopts.EquateNaNs()) {
		t.Errorf("with other losses elsewhere: %+v", again)
	}
}

// TestBestInFigures checks that figures show each optimizer at its own rate, as tables do.
func TestBestInFigures(t *testing.T) {
	r := bestOf(t, rates+`
[[study.figures]]
kind = "differences"
metric = "val_loss"
x = "optimizer"
baseline = "AdamW"
over = ["seed"]
best = {axis = "rate", on = {seed = [0, 1]}}
[[study.figures]]
kind = "heatmap"
metric = "val_loss"
x = "optimizer"
y = "seed"
best = {axis = "rate", on = "reported"}
[[study.figures]]
kind = "scatter"
x = "train_loss"
y = "val_loss"
series = ["optimizer"]
over = ["seed"]
best = {axis = "rate", on = {seed = [0, 1]}}
`, tuned)
	if heat := r.Figures[1].Picture.(*figure.Heat); heat.Values[2][1] != 2.0 || len(heat.Rows) != 4 ||
		len(heat.Columns) != 2 {
		t.Errorf("the heat map shows %+v", heat)
	}
	points := r.Figures[2].Picture.(*figure.Chart).Series[1].Points
	if len(points) != 1 || math.Abs(points[0].Y-2.1) > 1e-12 || math.Abs(points[0].X+2.1) > 1e-12 {
		t.Errorf("the scatter shows %+v", points)
	}
	curves := build(t, grid+`
[[study.figures]]
kind = "curves"
metric = "loss"
series = ["method"]
over = ["seed"]
best = {axis = "bits", on = "reported"}
`)
	one := curves.Figures[len(curves.Figures)-1]
	if notes := strings.Join(one.Notes, " "); len(one.Picture.(*figure.Chart).Series) != 4 ||
		!strings.Contains(notes, "the bits that has the best mean of validation loss") {
		t.Errorf("%d curves with the notes %q", len(one.Picture.(*figure.Chart).Series), notes)
	}
	drawn, ok := r.Figures[0].Picture.(*figure.Differences)
	if !ok || len(drawn.Series) != 1 {
		t.Fatalf("drawn is %+v", r.Figures[0].Picture)
	}
	got, want := drawn.Series[0].Rows[0], r.Tables[1].Entries[0][1].Difference
	if math.Abs(got.Mean-want.Mean) > 1e-12 || len(got.Each) != 2 ||
		!cmp.Equal(got.Low, want.Low, cmpopts.EquateNaNs()) {
		t.Errorf("the figure shows %+v, the table %+v", got, want)
	}
	if note := r.Figures[0].Notes[1]; note != "Each with the rate that has the best mean of "+
		"validation loss, seed 0, 1, which are not shown." {
		t.Errorf("the note is %q", note)
	}
}

// TestBestIsShown checks that every form of a report shows the chosen value, how it was chosen, and
// whether it is at an end of its axis.
func TestBestIsShown(t *testing.T) {
	r := bestOf(t, rates, tuned)
	html := pageOf(t, r)
	own := &r.Tables[1]
	text := strings.Join(slices.Concat(own.Grids()[0].Text()...), " ") + own.Grids()[0].TextNotes()
	for _, c := range []struct {
		form, text string
		want       []string
	}{
		{"terminal", text, []string{"2.20 ± 0.07 ? (1e-2)", "2.10 ± 0.14 * (1e-1†)"}},
		{"Markdown", string(r.Markdown()),
			[]string{"(1e-2)", "(1e-1†)", "Each column with its own rate"}},
		{"page", string(html), []string{"1e-2", "1e-1†"}},
		{"LaTeX", string(r.LaTeX()), []string{`(1e-1$\dagger$)`}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s lacks %q:\n%s", c.form, want, c.text)
			}
		}
		for _, want := range []string{
			"With each value: its rate, chosen by the lowest mean of validation loss with seed 0, 1; " +
				"reported are the others.",
			"the first or last rate that was tried: a better one may lie beyond.",
		} {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s does not say: %s", c.form, want)
			}
		}
	}
	table := r.Results()["tables"].([]map[string]any)[1]
	if diff := cmp.Diff(&study.Best{Axis: "rate", Metric: "val_loss", Better: "lower",
		On: map[string][]string{"seed": {"0", "1"}}}, table["best"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&report.Choice{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3},
		table["entries"].([]map[string]any)[1]["choice"]); diff != "" {
		t.Error(diff)
	}
	if p, err := own.Find(map[string]string{"optimizer": "SOAP"}); err != nil ||
		p.ChoiceText() != "1e-1†" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestBestOfFew checks that a value that diverged, or is not done yet, is not chosen, and that a
// note warns if the choice flatters the result.
func TestBestOfFew(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		text   string
		losses map[string][]float64
		want   *report.Choice
		n      int
		says   string
	}{
		"one diverged": {rates, with(map[string][]float64{"SOAP 1e-1": {1.9, nan, 2, 2}}),
			&report.Choice{Label: "1e-2", Tried: 3, Of: 3}, 2, "reported are the others"},
		"a reported one diverged": {rates, with(map[string][]float64{"SOAP 1e-1": {1.9, 2, nan, 2}}),
			&report.Choice{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3}, 2,
			"NaN or ∞: a replicate diverged"},
		"one is not done": {rates, with(map[string][]float64{"SOAP 1e-1": {1.9}}),
			&report.Choice{Label: "1e-2", Tried: 2, Of: 3}, 2, "“of 2/3”: two of the three values are done"},
		"nothing to report yet": {rates, with(map[string][]float64{"SOAP 1e-1": {1.9, 2}}),
			&report.Choice{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3}, 0, "reported are the others"},
		"nothing to choose by": {rates, map[string][]float64{"AdamW 1e-2": {2, 2, 2}, "SOAP 1e-1": {1}},
			nil, 0, "reported are the others"},
		"chosen on what is reported": {strings.Replace(rates, "on = {seed = [0, 1]}", `on = "reported"`,
			1), tuned, &report.Choice{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3}, 4,
			"on the replicates that are reported: that flatters"},
		"by another measure": {strings.Replace(rates, "on = {seed = [0, 1]}",
			`metric = "train_loss", better = "higher", on = "reported"`, 1), tuned,
			&report.Choice{Label: "1e-1", AtEnd: true, Tried: 3, Of: 3}, 4,
			"chosen by the highest mean of training loss on the replicates that are reported."},
		"words, as the study lists them": {strings.NewReplacer("[1e-2, 1e-3, 1e-1]",
			`[{label = "low", value = 1e-3}, {label = "middle", value = 1e-2}, {label = "high", value = 0.1}]`, `rate = "1e-2"`, `rate = "middle"`).Replace(rates),
			map[string][]float64{"SOAP low": {1, 1, 1, 1}, "SOAP middle": {2, 2, 2, 2},
				"SOAP high": {3, 3, 3, 3}}, &report.Choice{Label: "low", AtEnd: true, Tried: 3, Of: 3}, 2, "†"},
	} {
		table := &bestOf(t, c.text, c.losses).Tables[1]
		e := table.Entries[0][1]
		if diff := cmp.Diff(c.want, e.Choice); diff != "" || e.N != c.n || e.Expected == 0 {
			t.Errorf("%s: %+v\n%s", name, e, diff)
		}
		if notes := table.Grids()[0].TextNotes(); !strings.Contains(notes, c.says) &&
			table.Entries[0][0].N+e.N > 0 {
			t.Errorf("%s: the notes lack %q: %s", name, c.says, notes)
		}
	}
}

// TestLaTeXChoice checks that the LaTeX of an overview has a label of its own, and escapes what was
// chosen.
func TestLaTeXChoice(t *testing.T) {
	text := strings.Replace(rates, `best = {axis = "rate", on = {seed = [0, 1]}}`,
		"also = [\"train_loss\"]\nbest = {axis = \"rate\", on = {seed = [0, 1]}}", 1)
	text = strings.Replace(text, "values = [1e-2,", `values = [{label = "R&D_1 #2", value = 1e-2},`, 1)
	text = strings.Replace(text, `rate = "1e-2"`, `rate = "R&D_1 #2"`, 1)
	losses := map[string][]float64{}
	for k, v := range tuned {
		losses[strings.Replace(k, "1e-2", "R&D_1 #2", 1)] = v
	}
	r := bestOf(t, text, losses)
	tex := string(r.LaTeX())
	if strings.Contains(tex, "R&D") || strings.Count(tex, `\label{tab:rates-2}`) != 1 {
		t.Errorf("the LaTeX has a label twice, or an unescaped choice:\n%s", tex)
	}
}
