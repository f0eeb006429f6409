package study

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/schema"
)

// kinds of figures.
var kinds = []string{Bar, Curves, Heatmap, Trajectories, Scatter, Differences}

// readFigures reads [[study.figures]].
func (s *Study) readFigures(study *table, axes []axis, plans []plan) {
	for _, t := range study.tables("figures") {
		kind := t.text("kind", kinds...)
		if !t.has("kind") {
			t.report(t.key("kind"), "want one of "+schema.Quoted(kinds), "missing")
		}
		f := Figure{
			Kind: kind, Title: t.text("title"), Series: t.axes("series", axes), Over: t.axes("over", axes),
			LogX: t.flag("logx"), LogY: t.flag("logy"), Where: t.where(axes),
		}
		problems := len(study.errs)
		t.readContent(&f, axes, s.metrics())
		if used, places := f.axes(); places != "" && len(study.errs) == problems {
			t.checkAllUsed(axes, f.Where, places, used)
		}
		if f.Baseline != "" && len(study.errs) == problems {
			t.checkBaseline(plans, f.Where, map[string]string{f.X: f.Baseline})
		}
		t.finish()
		s.Figures = append(s.Figures, f)
	}
}

// axes returns the axes that the figure tells apart or takes means over, and the keys
// that name them; no keys for a kind that shows every cell alone.
func (f Figure) axes() (used []string, places string) {
	used = slices.Concat(f.Series, f.Over)
	switch f.Kind {
	case Bar, Differences:
		return append(used, f.X), "x, series or over"
	case Heatmap:
		return append(used, f.X, f.Y), "x, y, series or over"
	case Curves:
		return used, "series or over"
	}
	return used, ""
}

// readContent reads what depends on the kind of a figure: the metric and both axes.
func (t *table) readContent(f *Figure, axes []axis, known []string) {
	switch f.Kind {
	case Bar, Differences:
		f.Metric, f.X = t.required("metric", known), t.oneAxis("x", axes)
		t.checkUsedOnce(axes, "x", "series", "over")
		if f.Kind == Differences {
			f.Baseline = t.labelOf("baseline", f.X, axes)
		}
	case Heatmap:
		f.Metric, f.X, f.Y = t.required("metric", known), t.oneAxis("x", axes), t.oneAxis("y", axes)
		t.checkUsedOnce(axes, "x", "y", "series", "over")
	case Curves:
		if m, _ := t.get("metric").(string); slices.Contains(known, m) && strings.Contains(m, ".") {
			t.report(t.key("metric"), "want one of "+strings.Join(RecordMetrics(), ", "), "%s is measured once, when the training is done", m)
			break
		}
		f.Metric = t.required("metric", RecordMetrics())
		t.checkUsedOnce(axes, "series", "over")
	case Scatter:
		f.X, f.Y = t.required("x", known), t.required("y", known)
		t.checkUsedOnce(axes, "series", "over")
	case Trajectories:
		t.checkUsedOnce(axes, "series", "over")
	default: // the kind is wrong: its keys are not to be found unknown
		for _, name := range []string{"metric", "x", "y", "baseline"} {
			t.get(name)
		}
	}
}
