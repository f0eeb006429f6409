package report

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
)

// HTML returns the report as a page.
func (r *Report) HTML() ([]byte, error) {
	p := webPage{Title: r.Name, Summary: r.Progress(), Runs: r.runs()}
	for i := range r.Tables {
		p.Tables = append(p.Tables, r.Tables[i].page(r))
	}
	for _, f := range r.Figures {
		view := webFigure{Title: f.Title, Notes: f.Notes, Paper: f.Kind == study.Heatmap}
		if !f.Empty() {
			var svg bytes.Buffer
			if err := figure.Draw(&svg, figure.SVG, f.Picture, figure.Options{}); err != nil {
				return nil, fmt.Errorf("figure %s: %w", f.Title, err)
			}
			view.SVG = svg.Bytes()
		}
		if f.Kind == study.Curves && !f.Empty() {
			view.Chart = chart(f.Picture.(*figure.Chart))
		}
		p.Figures = append(p.Figures, view)
	}
	for _, run := range r.failed() {
		p.Failures = append(p.Failures, webFailure{Name: join(run.Labels), Err: cmp.Or(run.Err, firstLine(""))})
	}
	return render(p)
}

// page lays out the table, with the differences to the baseline below it.
func (t *Table) page(r *Report) webTable {
	grids := t.grids()
	out := t.layOut(r, grids[0])
	if len(grids) > 1 {
		below := t.layOut(r, grids[1])
		out.Below = &below
	}
	return out
}

func (t *Table) layOut(r *Report, g grid) webTable {
	out := webTable{Title: g.title, Notes: g.notes}
	levels := headings(g.columns)
	for level, spans := range levels {
		var head []heading
		for _, axis := range t.RowAxes {
			label := ""
			if level == len(levels)-1 {
				label = axis
			}
			head = append(head, heading{Label: label, Columns: 1, Text: true})
		}
		out.Head = append(out.Head, append(head, spans...))
	}
	for i, labels := range t.Rows {
		row := rowHead(r, t.RowAxes, labels)
		for _, c := range g.cells[i] {
			shown := webCell{Text: c.text + c.sign, Note: c.note, Bold: c.bold}
			if c.key != nil {
				shown.Sort = sortKey(*c.key)
			}
			row = append(row, shown)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// rowHead makes the labels of a row. They are sorted in the order of their axes.
func rowHead(r *Report, axes, labels []string) []webCell {
	var row []webCell
	for k, label := range labels {
		place := slices.IndexFunc(r.Axes, func(a study.Axis) bool { return a.Name == axes[k] })
		row = append(row, webCell{Text: label, Head: true, Sort: sortKey(float64(slices.Index(r.Axes[place].Labels, label)))})
	}
	return row
}

// maxHover is how many points of a curve are in the page, to be read off with the mouse.
const maxHover = 600

func chart(c *figure.Chart) *Chart {
	out := &Chart{X: c.X.Label, Y: c.Y.Label, LogX: c.X.Log, LogY: c.Y.Log, YMin: c.Y.Min, YMax: c.Y.Max, Series: []Curve{}}
	if low, high, ok := c.Span(); ok && c.Y.Log && out.YMax == 0 {
		out.YMin, out.YMax = low, high // as in the picture, where bands do not stretch it
	}
	for _, s := range c.Series {
		curve := Curve{Name: s.Name, X: []float64{}, Y: []*float64{}, Low: []*float64{}, High: []*float64{}}
		banded := slices.ContainsFunc(s.Points, func(p figure.Point) bool { return p.Minus != 0 || p.Plus != 0 })
		for _, p := range figure.Thin(s.Points, maxHover, func(p figure.Point) float64 { return p.Y }) {
			curve.X, curve.Y = append(curve.X, p.X), append(curve.Y, Finite(p.Y))
			if banded {
				curve.Low, curve.High = append(curve.Low, Finite(p.Y-p.Minus)), append(curve.High, Finite(p.Y+p.Plus))
			}
		}
		out.Series = append(out.Series, curve)
	}
	return out
}

// runs lists all cells with the numbers that tables and figures speak of.
func (r *Report) runs() webRuns {
	shown := r.metrics()
	head := []heading{{Label: "run", Columns: 1, Text: true}}
	var axes []string
	for _, a := range r.Axes {
		axes = append(axes, a.Name)
		head = append(head, heading{Label: a.Name, Columns: 1, Text: true})
	}
	head = append(head, heading{Label: "state", Columns: 1, Text: true})
	for _, m := range shown {
		head = append(head, heading{Label: metrics.Label(m), Columns: 1})
	}
	out := webRuns{Table: webTable{Title: "Runs", Head: [][]heading{head}}}
	for i, run := range r.Runs {
		id := fmt.Sprintf("run-%d", i+1)
		row := append([]webCell{{Text: fmt.Sprint(i + 1), Head: true, Sort: sortKey(float64(i)), Link: id}}, rowHead(r, axes, run.Labels)...)
		row = append(row, webCell{Text: string(run.State), Left: true, Sort: sortKey(float64(slices.Index(states, run.State)))})
		for _, m := range shown {
			cell := webCell{Text: absent}
			if v, ok := run.Summary[m]; ok {
				cell = webCell{Text: minus(metrics.Short(v)), Sort: sortKey(v)}
			}
			row = append(row, cell)
		}
		out.Table.Rows = append(out.Table.Rows, row)
		out.Details = append(out.Details, run.detail(id, &out.Provenances))
	}
	return out
}

// states is the order in which states are sorted.
var states = []study.State{study.Done, study.Unevaluated, study.Running, study.Interrupted, study.Failed, study.Stale, study.Missing}

// detail is what can be unfolded. Runs of one build and the same plugins share their
// provenance.
func (run *Run) detail(id string, provenances *[]string) webDetail {
	d := webDetail{ID: id, Name: run.ID, State: string(run.State), Config: run.Config, Provenance: -1}
	for _, s := range run.Set {
		d.Settings = append(d.Settings, removePlaces(s.Key+" = "+s.Value))
	}
	if run.Provenance == "" {
		return d
	}
	d.Provenance = slices.Index(*provenances, run.Provenance)
	if d.Provenance < 0 {
		d.Provenance = len(*provenances)
		*provenances = append(*provenances, run.Provenance)
	}
	return d
}

// metrics lists what is shown of each run: the metrics of the tables and of evaluations,
// and the final losses.
func (r *Report) metrics() []string {
	known, shown := map[string]bool{}, map[string]bool{}
	for _, run := range r.Runs {
		for name := range run.Summary {
			known[name] = true
			shown[name] = strings.Contains(name, ".") // a metric of an evaluation
		}
	}
	for _, t := range r.Tables {
		shown[t.Metric] = true
		if t.best != nil {
			shown[t.best.Metric] = true
		}
	}
	for _, name := range []string{"train_loss", "val_loss", "val_ppl", "distance"} {
		shown[name] = true
	}
	maps.DeleteFunc(shown, func(name string, show bool) bool { return !show || !known[name] })
	return slices.Sorted(maps.Keys(shown))
}
