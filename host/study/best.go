package study

import (
	"cmp"
	"slices"
)

// onReported stands in best.on where the replicates that are reported also choose.
const onReported = "reported"

const wantOn = `want labels of axes in over, such as on = {seed = [0, 1]}: these replicates choose, and are not reported; or on = "` +
	onReported + `": those that are reported also choose, which flatters`

// readBest reads the table best of a table, whose other keys are read.
func (s *Study) readBest(parent *table, of Table, known []string, axes []axis, plans []plan) *Best {
	t := parent.table("best")
	if t == nil {
		return nil
	}
	defer t.finish()
	b := &Best{Axis: t.oneAxis("axis", axes), Metric: cmp.Or(t.metric("metric", known), of.Metric), Better: t.text("better", "lower", "higher")}
	b.Better = cmp.Or(b.Better, s.better(b.Metric))
	if slices.Contains(slices.Concat(of.Rows, of.Columns, of.Over), b.Axis) {
		t.report(t.key("axis"), "want an axis that is not in rows, columns or over", "the axis %q is in one of them", b.Axis)
	}
	switch raw := t.get("on").(type) {
	case nil:
		t.report(t.key("on"), wantOn, "missing")
	case string:
		if raw != onReported {
			t.report(t.key("on"), wantOn, "found the string %q", raw)
		}
	default:
		b.On = t.readOn(of, axes, plans)
	}
	return b
}

// readOn reads the replicates that choose. Some have to be left, to be reported.
func (t *table) readOn(of Table, axes []axis, plans []plan) map[string][]string {
	on := t.table("on")
	if on == nil {
		return nil
	}
	problems := len(t.errs)
	labels := on.labels(axes, true)
	on.checkLabels(labels, axes)
	for name := range labels {
		if find(axes, name) != nil && !slices.Contains(of.Over, name) {
			t.report(on.key(name), "want axes of replicates, which over names", "the axis %q is not in over", name)
		}
	}
	if len(t.errs) > problems || len(plans) == 0 {
		return labels
	}
	choosing, reported := false, false
	for _, p := range plans {
		if c := (Cell{Labels: p.labels}); c.Matches(of.Where) {
			choosing, reported = choosing || c.Matches(labels), reported || !c.Matches(labels)
		}
	}
	switch {
	case !reported:
		t.report(t.key("on"), wantOn, "no replicate is left to be reported")
	case !choosing:
		t.report(t.key("on"), "want labels of cells that where and [[study.exclude]] leave in", "no cell here has its labels")
	}
	return labels
}
