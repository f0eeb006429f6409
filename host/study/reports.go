package study

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/schema"
)

// defaultMetric is the metric of tables that do not name one.
const defaultMetric = "val_loss"

func (s *Study) readTables(tables []*table, axes []axis, plans []plan) {
	known := s.metrics()
	for _, t := range tables {
		problems := len(t.Errs)
		var out Table
		t.read(optional("title", &out.Title), optional("metric", &out.Metric),
			optional("rows", &out.Rows), optional("columns", &out.Columns), optional("over", &out.Over),
			choice("better", &out.Better, "lower", "higher", "none"), optional("format", &out.Format),
			optional("also", &out.Also), optional("cost", &out.Cost),
			optionalTable("where"), optionalTable("baseline"), optionalTable("best"))
		t.checkMetric("metric", &out.Metric, known)
		t.checkAxes(axes, []string{"rows", "columns", "over"}, out.Rows, out.Columns, out.Over)
		if f := out.Format; f != "" && (!numberFormat.MatchString(f) ||
			strings.Contains(fmt.Sprintf(f, 1.5), "%!")) {
			t.wrong("format", f, `a verb for a number, such as "%.3f", without markup`)
		}
		out.Where = t.where(axes)
		out.Metric = cmp.Or(out.Metric, defaultMetric)
		out.Best = s.readBest(t.subtable("best"), out, known, axes, plans)
		out.Title = cmp.Or(out.Title, metrics.Label(out.Metric))
		out.Better = cmp.Or(out.Better, s.better(out.Metric))
		for i := range out.Also {
			t.checkMetric("also", &out.Also[i], slices.Concat(known, CostMetrics()))
		}
		if out.Cost != "" && (!slices.Contains(CostMetrics(), out.Cost) || out.Better == "none" ||
			!slices.Contains(out.Also, out.Cost)) {
			t.wrong("cost", out.Cost, fmt.Sprintf("one of %s, which also has, and a direction in better",
				schema.Quoted(CostMetrics())))
		}
		if len(t.Errs) == problems {
			used := slices.Concat(out.Rows, out.Columns, out.Over)
			if out.Best != nil {
				used = append(used, out.Best.Axis)
			}
			t.checkAllUsed(axes, out.Where, "rows, columns, over or best.axis", used)
		}
		if b := t.subtable("baseline"); b != nil {
			labels := b.labels(axes, false)
			b.checkLabels(labels, axes)
			out.Baseline = map[string]string{}
			for name, list := range labels {
				if !slices.Contains(slices.Concat(out.Rows, out.Columns), name) {
					t.report(b.key(name), "want labels of axes in rows and columns",
						"the axis %q is in neither", name)
				}
				out.Baseline[name] = list[0]
			}
		}
		if len(t.Errs) == problems {
			t.checkBaseline(plans, out.Where, out.Baseline)
		}
		s.Tables = append(s.Tables, out)
	}
}

// defaultTable returns a table of the default metric that has the last axis in its columns and the
// other axes in its rows, with means over seeds.
func defaultTable(axes []axis) Table {
	t := Table{Title: metrics.Label(defaultMetric), Metric: defaultMetric, Better: "lower"}
	for _, a := range axes {
		if a.seeds() {
			t.Over = append(t.Over, a.Name)
		} else {
			t.Rows = append(t.Rows, a.Name)
		}
	}
	if n := len(t.Rows); n > 1 {
		t.Rows, t.Columns = t.Rows[:n-1], t.Rows[n-1:]
	}
	return t
}

// checkMetric reports a metric that does not exist, and clears its name. An empty name has already
// been reported.
func (t *table) checkMetric(key string, metric *string, known []string) {
	m := *metric
	if m == "" || slices.Contains(known, m) {
		return
	}
	*metric = ""
	if metrics.Timed(m) {
		t.report(t.key(key), "leave it to cage bench, which measures speed",
			"%s differs from run to run of the same cell", m)
		return
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := schema.DidYouMean(m, known); near != "" {
		hint = near
	} else if task, _, ofTask := strings.Cut(m, "."); ofTask {
		hint = fmt.Sprintf("have %q among the tasks of [[study.evaluations]]", task)
		other := func(k string) bool { return !strings.HasPrefix(k, task+".") }
		if of := slices.DeleteFunc(slices.Clone(known), other); len(of) > 0 {
			hint = "known: " + strings.Join(of, ", ")
		}
	}
	t.report(t.key(key), hint, "there is no metric %q", m)
}

// checkAxes reports names of axes that do not exist, or that are given more than once. names holds
// those at each of the keys.
func (t *table) checkAxes(axes []axis, keys []string, names ...[]string) {
	first := map[string]string{} // the first key that names an axis
	for i, key := range keys {
		for _, axis := range names[i] {
			switch other := first[axis]; {
			case find(axes, axis) == nil:
				t.unknownAxis(t.key(key), axis, axes)
			case other == "":
				first[axis] = key
			case other == key:
				t.report(t.key(key), "leave one out", "names the axis %q twice", axis)
			default:
				t.report(t.key(key), "name each axis once", "the axis %q is in %s already", axis, other)
			}
		}
	}
}

// checkAllUsed reports axes with several labels that a table or figure does not use: it would
// average over more than replicates. keys lists the keys that can name an axis.
func (t *table) checkAllUsed(axes []axis, where map[string][]string, keys string, used []string) {
	if t.incomplete {
		return
	}
	for _, a := range axes {
		one := len(a.Labels) == 1 || len(where[a.Name]) == 1
		if !one && !slices.Contains(used, a.Name) {
			t.report(t.path, "want it in "+keys+", or one label of it in where",
				"the axis %q is not used", a.Name)
		}
	}
}

func (t *table) where(axes []axis) map[string][]string {
	w := t.subtable("where")
	if w == nil {
		return nil
	}
	where := w.labels(axes, true)
	w.checkLabels(where, axes)
	return where
}

const (
	noneSelected = "no selected cell has these labels"
	wantSelected = "want labels of cells that where and [[study.exclude]] leave in"
)

// checkBaseline reports a baseline whose labels are not those of any cell that where selects.
func (t *table) checkBaseline(plans []plan, where map[string][]string, baseline map[string]string) {
	has := func(p plan) bool {
		for axis, label := range baseline {
			if p.labels[axis] != label {
				return false
			}
		}
		return Cell{Labels: p.labels}.Matches(where)
	}
	if !t.incomplete && len(baseline) > 0 && len(plans) > 0 && !slices.ContainsFunc(plans, has) {
		t.report(t.key("baseline"), wantSelected, noneSelected)
	}
}

// onReported is the value of best.on that chooses on the reported replicates.
const onReported = "reported"

const onIs = "labels of axes in over, such as on = {seed = [0, 1]}: these replicates choose, and " +
	`are not reported; or on = "` + onReported +
	`": those that are reported also choose, which is optimistic`

// readBest reads t, the subtable best of a table whose other keys were read into of. It returns nil
// if t is nil.
func (s *Study) readBest(t *table, of Table, known []string, axes []axis, plans []plan) *Best {
	if t == nil {
		return nil
	}
	b := &Best{}
	var on any
	t.read(schema.Key{Name: "axis", To: &b.Axis, Is: schema.NonEmpty("that names an axis")},
		optional("metric", &b.Metric), choice("better", &b.Better, "lower", "higher"),
		schema.Key{Name: "on", To: &on, Is: schema.Anything(onIs)},
		schema.Key{Name: "spare", To: &b.Spare, Default: false})
	if b.Axis != "" {
		t.checkAxes(axes, []string{"axis"}, []string{b.Axis})
	}
	t.checkMetric("metric", &b.Metric, known)
	b.Metric = cmp.Or(b.Metric, of.Metric)
	b.Better = cmp.Or(b.Better, s.better(b.Metric))
	if b.Axis != "" && slices.Contains(slices.Concat(of.Rows, of.Columns, of.Over), b.Axis) {
		t.report(t.key("axis"), "want another axis",
			"the axis %q is in rows, columns or over already", b.Axis)
	}
	switch on := on.(type) {
	case nil: // its absence has been reported
	case map[string]any:
		b.On = t.readOn(t.subtable("on"), of, axes, plans)
	default:
		if on != onReported {
			t.wrong("on", on, onIs)
		}
	}
	if b.Spare && len(b.On) == 0 && t.has("on") {
		t.report(t.key("spare"), "want labels in on: runs can be spared where other replicates choose",
			"all replicates choose")
	}
	return b
}

// readOn reads the replicates to choose on. At least one replicate must remain to be reported.
func (t *table) readOn(on *table, of Table, axes []axis, plans []plan) map[string][]string {
	problems := len(t.Errs)
	labels := on.labels(axes, true)
	on.checkLabels(labels, axes)
	for name := range labels {
		if find(axes, name) != nil && !slices.Contains(of.Over, name) {
			t.report(on.key(name), "want axes of replicates, which over names",
				"the axis %q is not in over", name)
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
		t.report(t.key("on"), wantSelected, noneSelected)
	}
	return labels
}

// keysOfKind lists, for each kind of figure, the required keys that other kinds do not have.
var keysOfKind = map[string][]string{
	Bar: {"metric", "x"}, Curves: {"metric"}, Heatmap: {"metric", "x", "y"}, Trajectories: {},
	Scatter: {"x", "y"}, Differences: {"metric", "x", "baseline"},
}

func (s *Study) readFigures(tables []*table, axes []axis, plans []plan) {
	known := s.metrics()
	for _, t := range tables {
		var f Figure
		kinds := schema.OneOf(Bar, Curves, Heatmap, Trajectories, Scatter, Differences)
		keys := []schema.Key{
			{Name: "kind", To: &f.Kind, Is: kinds},
			optional("title", &f.Title), optional("series", &f.Series), optional("over", &f.Over),
			{Name: "logx", To: &f.LogX, Default: false}, {Name: "logy", To: &f.LogY, Default: false},
			optionalTable("where"), optionalTable("best"),
		}
		problems := len(t.Errs)
		kind, _ := t.values["kind"].(string)
		content := map[string]*string{"metric": &f.Metric, "x": &f.X, "y": &f.Y, "baseline": &f.Baseline}
		if _, ok := keysOfKind[kind]; !ok {
			for _, name := range []string{"metric", "x", "y", "baseline"} {
				keys = append(keys, optional(name, content[name]))
			}
		}
		for _, name := range keysOfKind[kind] {
			is := "that names an axis"
			switch {
			case name == "baseline":
				is = "that is a label of the axis x"
				x, _ := t.values["x"].(string)
				if a := find(axes, x); a != nil {
					is = "that is one of " + schema.Quoted(a.Labels)
				}
			case kind == Curves:
				is = "that names one of " + strings.Join(RecordMetrics(), ", ")
			case name == "metric" || kind == Scatter:
				is = "that names one of " + strings.Join(known, ", ")
			}
			keys = append(keys, schema.Key{Name: name, To: content[name], Is: schema.NonEmpty(is)})
		}
		t.read(keys...)
		f.Where = t.where(axes)
		t.checkContent(&f, axes, known)
		of := Table{
			Metric: f.Metric, Rows: f.Series, Columns: []string{f.X, f.Y}, Over: f.Over, Where: f.Where,
		}
		if f.Kind == Scatter {
			of.Metric, of.Columns = f.Y, nil
		}
		if !slices.Contains(known, of.Metric) { // a metric of curves
			of.Metric = defaultMetric
		}
		f.Best = s.readBest(t.subtable("best"), of, known, axes, plans)
		if f.Best != nil && f.Best.Spare {
			t.report(t.key("best"), "leave it out: it is for tables", "spare is given")
		}
		used := slices.Concat(f.Series, f.Over)
		if f.Best != nil {
			used = append(used, f.Best.Axis)
		}
		mayName := map[string]string{ // keys that name axes; the other kinds show each cell by itself
			Bar: "x, series, over or best.axis", Differences: "x, series, over or best.axis",
			Heatmap: "x, y, series, over or best.axis", Curves: "series, over or best.axis",
		}[f.Kind]
		if f.Kind == Heatmap {
			used = append(used, f.Y)
		}
		if f.Kind != Curves {
			used = append(used, f.X)
		}
		if mayName != "" && len(t.Errs) == problems {
			t.checkAllUsed(axes, f.Where, mayName, used)
		}
		if f.Baseline != "" && len(t.Errs) == problems {
			t.checkBaseline(plans, f.Where, map[string]string{f.X: f.Baseline})
		}
		s.Figures = append(s.Figures, f)
	}
}

func (t *table) checkContent(f *Figure, axes []axis, known []string) {
	var x, y []string
	switch f.Kind {
	case Bar, Differences, Heatmap:
		t.checkMetric("metric", &f.Metric, known)
		if f.X != "" {
			x = []string{f.X}
		}
		if f.Y != "" {
			y = []string{f.Y}
		}
		a := find(axes, f.X)
		if a != nil && f.Baseline != "" && !t.incomplete && !slices.Contains(a.Labels, f.Baseline) {
			t.report(t.key("baseline"), "want one of "+schema.Quoted(a.Labels),
				"the axis %q has no label %q", f.X, f.Baseline)
		}
	case Curves:
		if slices.Contains(known, f.Metric) && strings.Contains(f.Metric, ".") {
			t.report(t.key("metric"), "want one of "+strings.Join(RecordMetrics(), ", "),
				"%s is measured once, when the training is done", f.Metric)
		} else {
			t.checkMetric("metric", &f.Metric, RecordMetrics())
		}
	case Scatter:
		t.checkMetric("x", &f.X, known)
		t.checkMetric("y", &f.Y, known)
	}
	t.checkAxes(axes, []string{"x", "y", "series", "over"}, x, y, f.Series, f.Over)
}

// numberFormat matches a format with one verb. In reports, beside a number, none of its characters
// means something else.
var numberFormat = regexp.MustCompile(`^([\pL\pN .,:;()/+−·×°-]|%%)*%[^%]([\pL\pN .,:;()/+−·×°-]|%%)*$`)
