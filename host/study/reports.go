package study

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/schema"
)

// defaultMetric is what tables show when nothing is said.
const defaultMetric = "val_loss"

// readTables reads [[study.tables]].
func (s *Study) readTables(tables []*table, axes []axis, plans []plan) {
	known := s.metrics()
	for _, t := range tables {
		problems := len(t.Errs)
		var out Table
		var where, baseline, best map[string]any
		t.read(optional("title", &out.Title), optional("metric", &out.Metric), optional("rows", &out.Rows), optional("columns", &out.Columns),
			optional("over", &out.Over), choice("better", &out.Better, "lower", "higher", "none"), optional("format", &out.Format),
			optional("where", &where), optional("baseline", &baseline), optional("best", &best))
		t.checkMetric("metric", &out.Metric, known)
		t.checkAxes(axes, "rows", out.Rows...)
		t.checkAxes(axes, "columns", out.Columns...)
		t.checkAxes(axes, "over", out.Over...)
		t.checkUsedOnce(axes, []string{"rows", "columns", "over"}, map[string][]string{"rows": out.Rows, "columns": out.Columns, "over": out.Over})
		t.checkFormat(&out.Format)
		out.Where = t.where(where, axes)
		out.Metric = cmp.Or(out.Metric, defaultMetric)
		out.Best = s.readBest(t.below("best", best), out, known, axes, plans)
		out.Title, out.Better = cmp.Or(out.Title, metrics.Label(out.Metric)), cmp.Or(out.Better, s.better(out.Metric))
		if len(t.Errs) == problems {
			used := slices.Concat(out.Rows, out.Columns, out.Over)
			if out.Best != nil {
				used = append(used, out.Best.Axis)
			}
			t.checkAllUsed(axes, out.Where, "rows, columns, over or best.axis", used)
		}
		out.Baseline = t.baseline(t.below("baseline", baseline), axes, out.Columns)
		if len(t.Errs) == problems {
			t.checkBaseline(plans, out.Where, out.Baseline)
		}
		s.Tables = append(s.Tables, out)
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

// checkMetric reports the name of a metric that there is not, and takes it away; an empty one has been reported.
func (t *table) checkMetric(key string, metric *string, known []string) {
	m := *metric
	if m == "" || slices.Contains(known, m) {
		return
	}
	*metric = ""
	if metrics.Timed(m) {
		t.report(t.key(key), "leave it to cage bench, which measures speed", "%s differs from run to run of the same cell", m)
		return
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := schema.DidYouMean(m, known); near != "" {
		hint = near
	} else if task, _, ofTask := strings.Cut(m, "."); ofTask {
		hint = taskHint(task, known)
	}
	t.report(t.key(key), hint, "there is no metric %q", m)
}

// taskHint says what metrics of a task there are.
func taskHint(task string, known []string) string {
	of := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, task+".") })
	if len(of) == 0 {
		return fmt.Sprintf("have %q among the tasks of [[study.evaluations]]", task)
	}
	return "known: " + strings.Join(of, ", ")
}

// checkAxes reports names under a key that are not those of axes, or stand there twice.
func (t *table) checkAxes(axes []axis, key string, names ...string) {
	for i, axis := range names {
		if find(axes, axis) == nil {
			t.unknownAxis(t.key(key), axis, axes)
		} else if slices.Contains(names[:i], axis) {
			t.report(t.key(key), "leave one out", "names the axis %q twice", axis)
		}
	}
}

// checkUsedOnce reports axes that stand under two of the keys.
func (t *table) checkUsedOnce(axes []axis, keys []string, names map[string][]string) {
	first := map[string]string{}
	for _, key := range keys {
		for _, axis := range names[key] {
			if other := first[axis]; other != "" && other != key && find(axes, axis) != nil {
				t.report(t.key(key), "want an axis in one place only", "the axis %q is in %s already", axis, other)
				continue
			}
			first[axis] = key
		}
	}
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
func (t *table) where(values map[string]any, axes []axis) map[string][]string {
	w := t.below("where", values)
	if w == nil {
		return nil
	}
	where := w.labels(axes, true)
	w.checkLabels(where, axes)
	return where
}

// baseline reads labels of the axes in the columns.
func (t *table) baseline(b *table, axes []axis, columns []string) map[string]string {
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

// checkFormat reports a format that is no verb for a number, and takes it away.
func (t *table) checkFormat(format *string) {
	f := *format
	if f == "" {
		return
	}
	if text := fmt.Sprintf(f, 1.5); strings.Contains(text, "%!") || strings.Count(strings.ReplaceAll(f, "%%", ""), "%") != 1 {
		t.wrong("format", f, `a verb for a number, such as "%.3f"`)
		*format = ""
	}
}
