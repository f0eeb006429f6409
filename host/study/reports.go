package study

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/schema"
)

// defaultMetric is what tables show when nothing is said.
const defaultMetric = "val_loss"

// readTables reads [[study.tables]]; when the key is absent, there is one table of the
// validation loss over all axes.
func (s *Study) readTables(study *table, axes []axis, plans []plan) {
	known := s.metrics()
	for _, t := range study.tables("tables") {
		problems := len(study.errs)
		out := Table{
			Title: t.text("title"), Metric: t.metric("metric", known),
			Rows: t.axes("rows", axes), Columns: t.axes("columns", axes), Over: t.axes("over", axes),
			Better: t.text("better", "lower", "higher", "none"), Format: t.format(), Where: t.where(axes),
		}
		t.checkUsedOnce(axes, "rows", "columns", "over")
		if out.Metric == "" {
			out.Metric = defaultMetric
		}
		out.Best = s.readBest(t, out, known, axes, plans)
		if out.Title == "" {
			out.Title = metrics.Label(out.Metric)
		}
		if out.Better == "" {
			out.Better = s.better(out.Metric)
		}
		if len(study.errs) == problems {
			used := slices.Concat(out.Rows, out.Columns, out.Over)
			if out.Best != nil {
				used = append(used, out.Best.Axis)
			}
			t.checkAllUsed(axes, out.Where, "rows, columns, over or best.axis", used)
		}
		out.Baseline = t.baseline(axes, out.Columns)
		if len(study.errs) == problems {
			t.checkBaseline(plans, out.Where, out.Baseline)
		}
		t.finish()
		s.Tables = append(s.Tables, out)
	}
	if !study.has("tables") {
		s.Tables = []Table{defaultTable(axes)}
	}
}

// defaultTable has the last axis in its columns, the others in its rows, and takes means
// over seeds.
func defaultTable(axes []axis) Table {
	t := Table{Title: metrics.Label(defaultMetric), Metric: defaultMetric, Better: "lower"}
	for _, a := range axes {
		if a.seeds() {
			t.Over = append(t.Over, a.name)
		} else {
			t.Rows = append(t.Rows, a.name)
		}
	}
	if n := len(t.Rows); n > 1 {
		t.Rows, t.Columns = t.Rows[:n-1], t.Rows[n-1:]
	}
	return t
}

// metric reads the name of a metric.
func (t *table) metric(name string, known []string) string {
	m := t.text(name)
	if m == "" || slices.Contains(known, m) {
		return m
	}
	if metrics.Timed(m) {
		t.report(t.key(name), "leave it to cage bench, which measures speed", "%s differs from run to run of the same cell", m)
		return ""
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := schema.DidYouMean(m, known); near != "" {
		hint = near
	} else if task, _, ofTask := strings.Cut(m, "."); ofTask {
		hint = taskHint(task, known)
	}
	t.report(t.key(name), hint, "there is no metric %q", m)
	return ""
}

// taskHint says what metrics of a task there are.
func taskHint(task string, known []string) string {
	of := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, task+".") })
	if len(of) == 0 {
		return fmt.Sprintf("have %q among the tasks of [[study.evaluations]]", task)
	}
	return "known: " + strings.Join(of, ", ")
}

// required is metric for a key that must be given.
func (t *table) required(name string, known []string) string {
	if !t.has(name) {
		t.report(t.key(name), "want one of "+strings.Join(known, ", "), "missing")
	}
	return t.metric(name, known)
}

// axes reads names of axes.
func (t *table) axes(name string, axes []axis) []string {
	list := t.texts(name)
	for i, axis := range list {
		if find(axes, axis) == nil {
			t.unknownAxis(t.key(name), axis, axes)
		} else if slices.Contains(list[:i], axis) {
			t.report(t.key(name), "leave one out", "names the axis %q twice", axis)
		}
	}
	return list
}

// oneAxis reads the name of an axis that must be given.
func (t *table) oneAxis(name string, axes []axis) string {
	axis := t.text(name)
	switch {
	case !t.has(name):
		t.report(t.key(name), "want the name of an axis", "missing")
	case axis != "" && find(axes, axis) == nil:
		t.unknownAxis(t.key(name), axis, axes)
	}
	return axis
}

// labelOf reads a label of an axis, which must be given.
func (t *table) labelOf(name, axis string, axes []axis) string {
	label, a := t.text(name), find(axes, axis)
	switch {
	case a == nil || t.vague: // which has been reported
	case !t.has(name):
		t.report(t.key(name), "want one of "+schema.Quoted(a.labels()), "missing")
	case label != "" && !slices.Contains(a.labels(), label):
		t.report(t.key(name), "want one of "+schema.Quoted(a.labels()), "the axis %q has no label %q", axis, label)
	}
	return label
}

// checkUsedOnce reports axes that stand under two of the keys.
func (t *table) checkUsedOnce(axes []axis, names ...string) {
	first := map[string]string{}
	for _, name := range names {
		for _, axis := range t.quietTexts(name) {
			if other := first[axis]; other != "" && other != name && find(axes, axis) != nil {
				t.report(t.key(name), "want an axis in one place only", "the axis %q is in %s already", axis, other)
				continue
			}
			first[axis] = name
		}
	}
}

// quietTexts is texts for a key whose problems have been reported.
func (t *table) quietTexts(name string) []string {
	var list []string
	switch raw := t.values[name].(type) {
	case string:
		list = []string{raw}
	case []any:
		for _, e := range raw {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// checkAllUsed reports axes of several labels that a table or figure does not use, which
// would average cells of different meaning. places names the keys where an axis can stand.
func (t *table) checkAllUsed(axes []axis, where map[string][]string, places string, used []string) {
	if t.vague {
		return
	}
	for _, a := range axes {
		one := len(a.labels()) == 1 || len(where[a.name]) == 1
		if !one && !slices.Contains(used, a.name) {
			t.report(t.path, "want it in "+places+", or one label of it in where", "the axis %q is nowhere", a.name)
		}
	}
}

// where reads labels by axis.
func (t *table) where(axes []axis) map[string][]string {
	w := t.table("where")
	if w == nil {
		return nil
	}
	where := w.labels(axes, true)
	w.checkLabels(where, axes)
	return where
}

// baseline reads labels of the axes in the columns.
func (t *table) baseline(axes []axis, columns []string) map[string]string {
	b := t.table("baseline")
	if b == nil {
		return nil
	}
	labels := b.labels(axes, false)
	b.checkLabels(labels, axes)
	out := map[string]string{}
	for name, list := range labels {
		if !slices.Contains(columns, name) {
			t.report(b.key(name), "want labels of the axes in columns", "the axis %q is not in columns", name)
		}
		out[name] = list[0]
	}
	for _, name := range columns {
		if out[name] == "" && find(axes, name) != nil && !b.has(name) {
			t.report(b.path, "want a label of every axis in columns", "no label of the axis %q", name)
		}
	}
	return out
}

// checkBaseline reports labels that no cell has of those that where leaves in.
func (t *table) checkBaseline(plans []plan, where map[string][]string, baseline map[string]string) {
	has := func(p plan) bool {
		for axis, label := range baseline {
			if p.labels[axis] != label {
				return false
			}
		}
		return Cell{Labels: p.labels}.Matches(where)
	}
	if !t.vague && len(baseline) > 0 && len(plans) > 0 && !slices.ContainsFunc(plans, has) {
		t.report(t.key("baseline"), "want labels of cells that where and [[study.exclude]] leave in", "no cell here has its labels")
	}
}

// format reads a verb for a number.
func (t *table) format() string {
	f := t.text("format")
	if f == "" {
		return ""
	}
	if text := fmt.Sprintf(f, 1.5); strings.Contains(text, "%!") || strings.Count(strings.ReplaceAll(f, "%%", ""), "%") != 1 {
		t.wrong("format", f, `a verb for a number, such as "%.3f"`)
		return ""
	}
	return f
}
