package study

import (
	"cmp"
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// onReported stands in best.on where the replicates that are reported also choose.
const onReported = "reported"

const onIs = `labels of axes in over, such as on = {seed = [0, 1]}: these replicates choose, and are not reported; or on = "` +
	onReported + `": those that are reported also choose, which flatters`

// readBest reads the table best of a table, whose other keys are read; nil stands for none.
func (s *Study) readBest(t *table, of Table, known []string, axes []axis, plans []plan) *Best {
	if t == nil {
		return nil
	}
	b := &Best{}
	var on any
	t.read(schema.Key{Name: "axis", To: &b.Axis, Is: schema.NonEmpty("that names an axis")}, optional("metric", &b.Metric),
		choice("better", &b.Better, "lower", "higher"), schema.Key{Name: "on", To: &on, Is: schema.Anything(onIs)})
	if b.Axis != "" {
		t.checkAxes(axes, "axis", b.Axis)
	}
	t.checkMetric("metric", &b.Metric, known)
	b.Metric = cmp.Or(b.Metric, of.Metric)
	b.Better = cmp.Or(b.Better, s.better(b.Metric))
	if slices.Contains(slices.Concat(of.Rows, of.Columns, of.Over), b.Axis) {
		t.report(t.key("axis"), "want an axis that is not in rows, columns or over", "the axis %q is in one of them", b.Axis)
	}
	switch on := on.(type) {
	case nil: // which has been reported
	case map[string]any:
		b.On = t.readOn(t.below("on", on), of, axes, plans)
	default:
		if on != onReported {
			t.wrong("on", on, onIs)
		}
	}
	return b
}

// readOn reads the replicates that choose. Some have to be left, to be reported.
func (t *table) readOn(on *table, of Table, axes []axis, plans []plan) map[string][]string {
	problems := len(t.Errs)
	labels := on.labels(axes, true)
	on.checkLabels(labels, axes)
	for name := range labels {
		if find(axes, name) != nil && !slices.Contains(of.Over, name) {
			t.report(on.key(name), "want axes of replicates, which over names", "the axis %q is not in over", name)
		}
	}
	if len(t.Errs) > problems || len(plans) == 0 {
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
		t.report(t.key("on"), "want "+onIs, "no replicate is left to be reported")
	case !choosing:
		t.report(t.key("on"), "want labels of cells that where and [[study.exclude]] leave in", "no cell here has its labels")
	}
	return labels
}
