package study

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/schema"
)

// kinds of figures.
var kinds = []string{Bar, Curves, Heatmap, Trajectories, Scatter, Differences}

// contentOf names the keys of a figure that depend on its kind. They are all required.
var contentOf = map[string][]string{
	Bar: {"metric", "x"}, Curves: {"metric"}, Heatmap: {"metric", "x", "y"}, Trajectories: {}, Scatter: {"x", "y"}, Differences: {"metric", "x", "baseline"},
}

// readFigures reads [[study.figures]].
func (s *Study) readFigures(tables []*table, axes []axis, plans []plan) {
	known := s.metrics()
	for _, t := range tables {
		var f Figure
		var where map[string]any
		keys := []schema.Key{
			{Name: "kind", To: &f.Kind, Is: schema.OneOf(kinds...)}, optional("title", &f.Title), optional("series", &f.Series), optional("over", &f.Over),
			{Name: "logx", To: &f.LogX, Default: false}, {Name: "logy", To: &f.LogY, Default: false}, optional("where", &where),
		}
		problems := len(t.Errs)
		kind, _ := t.values["kind"].(string)
		t.read(append(keys, t.content(&f, kind, axes, known)...)...)
		t.checkAxes(axes, "series", f.Series...)
		t.checkAxes(axes, "over", f.Over...)
		f.Where = t.where(where, axes)
		t.checkContent(&f, axes, known)
		if used, places := f.axes(); places != "" && len(t.Errs) == problems {
			t.checkAllUsed(axes, f.Where, places, used)
		}
		if f.Baseline != "" && len(t.Errs) == problems {
			t.checkBaseline(plans, f.Where, map[string]string{f.X: f.Baseline})
		}
		s.Figures = append(s.Figures, f)
	}
}

// content describes the keys that a figure of a kind has; if there is no such kind, those of all kinds.
func (t *table) content(f *Figure, kind string, axes []axis, known []string) []schema.Key {
	list, ok := contentOf[kind]
	if !ok {
		return []schema.Key{optional("metric", &f.Metric), optional("x", &f.X), optional("y", &f.Y), optional("baseline", &f.Baseline)}
	}
	var keys []schema.Key
	for _, name := range list {
		k := schema.Key{Name: name, To: map[string]*string{"metric": &f.Metric, "x": &f.X, "y": &f.Y, "baseline": &f.Baseline}[name], Is: schema.NonEmpty("that names an axis")}
		switch {
		case name == "baseline":
			k.Is = schema.NonEmpty("that is a label of the axis x")
			x, _ := t.values["x"].(string)
			if a := find(axes, x); a != nil {
				k.Is = schema.NonEmpty("that is one of " + schema.Quoted(a.labels()))
			}
		case kind == Curves:
			k.Is = schema.NonEmpty("that names one of " + strings.Join(RecordMetrics(), ", "))
		case name == "metric" || kind == Scatter:
			k.Is = schema.NonEmpty("that names one of " + strings.Join(known, ", "))
		}
		keys = append(keys, k)
	}
	return keys
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

// checkContent checks what depends on the kind of a figure: its metrics and axes.
func (t *table) checkContent(f *Figure, axes []axis, known []string) {
	once := map[string][]string{"series": f.Series, "over": f.Over}
	switch f.Kind {
	case Bar, Differences, Heatmap:
		t.checkMetric("metric", &f.Metric, known)
		for name, axis := range map[string]string{"x": f.X, "y": f.Y} {
			if axis != "" {
				once[name] = []string{axis}
				t.checkAxes(axes, name, axis)
			}
		}
		if a := find(axes, f.X); f.Kind == Differences && a != nil && f.Baseline != "" && !t.vague && !slices.Contains(a.labels(), f.Baseline) {
			t.report(t.key("baseline"), "want one of "+schema.Quoted(a.labels()), "the axis %q has no label %q", f.X, f.Baseline)
		}
	case Curves:
		if slices.Contains(known, f.Metric) && strings.Contains(f.Metric, ".") {
			t.report(t.key("metric"), "want one of "+strings.Join(RecordMetrics(), ", "), "%s is measured once, when the training is done", f.Metric)
			return
		}
		t.checkMetric("metric", &f.Metric, RecordMetrics())
	case Scatter:
		t.checkMetric("x", &f.X, known)
		t.checkMetric("y", &f.Y, known)
	}
	t.checkUsedOnce(axes, []string{"x", "y", "series", "over"}, once)
}
