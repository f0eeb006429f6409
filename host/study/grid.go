package study

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

type axis struct {
	Axis
	keys   []string // keys of the configuration, in the short form
	values []value  // those of the first labels; only single cells have the others
}

// value is a label of an axis, with the settings that it stands for.
type value struct {
	label    string
	settings []plaintoml.Setting
	quantize *Quantize // nil: not given
	init     *table    // labels of the cell whose model this cell starts from; nil: not given
}

// seeds reports whether the labels of the axis are replicates, judging by the keys that the axis
// sets or, if it sets none, by its name.
func (a *axis) seeds() bool {
	if len(a.keys) == 0 {
		return a.Name == "seed" || a.Name == "seeds"
	}
	return !slices.ContainsFunc(a.keys, func(key string) bool {
		return key != "seed" && !strings.HasSuffix(key, ".seed") && !strings.HasSuffix(key, "_seed")
	})
}

func axisNames(axes []axis) []string {
	return lists.Map(axes, func(a axis) string { return a.Name })
}

func find(axes []axis, name string) *axis {
	i := slices.IndexFunc(axes, func(a axis) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &axes[i]
}

func readAxes(tables []*table) []axis {
	var axes []axis
	for _, t := range tables {
		var a axis
		var values any
		name := schema.NonEmpty(`that names the axis, such as name = "bits"`)
		t.read(schema.Key{Name: "name", To: &a.Name, Is: name}, optional("key", &a.keys),
			optional("values", &values))
		if a.Name == "" {
			t.incomplete = true
		} else if find(axes, a.Name) != nil {
			t.report(t.key("name"), "want a different name for each axis", "there are two axes %q", a.Name)
		}
		if slices.Contains(a.keys, outKey) {
			t.report(t.key("key"), "want another key", outIsOurs)
		}
		if t.has("values") && t.has("key") == (len(a.keys) > 0) {
			problems := len(t.Errs)
			a.values = readValues(t, a, values)
			a.Labels = lists.Map(a.values, func(v value) string { return v.label })
			t.incomplete = t.incomplete || len(t.Errs) > problems
		}
		axes = append(axes, a)
	}
	return axes
}

const valueTables = `[{label = "...", set = {...}}, ...]`

func readValues(t *table, a axis, raw any) []value {
	var elements []any
	switch list := raw.(type) {
	case nil:
		return nil
	case []any:
		elements = list
	case []map[string]any:
		elements = lists.Map(list, func(e map[string]any) any { return e })
	default:
		t.wrong("values", raw, `values such as [2, 3, 4] with key = "...", or `+valueTables)
		return nil
	}
	plain := slices.IndexFunc(elements, func(e any) bool { return !schema.IsTable(e) })
	if plain >= 0 && len(a.keys) == 0 {
		t.report(t.key("key"), `want the key that gets the values, such as key = "quantizer.bits"; `+
			"or a table for each value: "+valueTables,
			"missing, but values has %s", schema.Describe(elements[plain]))
		return nil
	}
	var values []value
	for i, e := range elements {
		key := plaintoml.Indexed(t.key("values"), i)
		v, ok := readValue(t, a, key, e)
		if !ok {
			continue
		}
		if slices.ContainsFunc(values, func(other value) bool { return other.label == v.label }) {
			t.report(key, "want a different label for each value", "there are two values %q", v.label)
			continue
		}
		values = append(values, v)
	}
	return values
}

// readValue reads a value of an axis: a table {label, set} or, if the axis has keys, their value or
// a table {label, value, set}.
func readValue(t *table, a axis, key string, raw any) (value, bool) {
	values, isTable := raw.(map[string]any)
	if !isTable {
		label, ok := t.label(key, raw)
		if list, isArray := raw.([]any); isArray {
			label, ok = plaintoml.Setting{Value: list}.Text(), true
		}
		if !ok {
			t.report(key, `want {label = "...", value = ...}`, "found %s", schema.Describe(raw))
			return value{}, false
		}
		return value{label: label, settings: t.assign(a.keys, key, raw)}, true
	}
	e := &table{reader: t.reader, path: key, values: values}
	var rawLabel, rawValue, quantize any
	isLabel := schema.Anything(`the name of the value, such as label = "CAGE"`)
	keys := []schema.Key{
		{Name: "label", To: &rawLabel, Is: isLabel},
		optionalTable("set"), optional("quantize", &quantize), optionalTable("init"),
	}
	if len(a.keys) > 0 {
		isValue := schema.Anything("the value of " + strings.Join(a.keys, " and "))
		keys = append(keys, schema.Key{Name: "value", To: &rawValue, Is: isValue})
	}
	e.read(keys...)
	label, ok := t.label(e.key("label"), rawLabel)
	if !ok && e.has("label") {
		e.wrong("label", rawLabel, "a string or a number")
	}
	settings := slices.Concat(t.assign(a.keys, e.key("value"), rawValue), e.settings())
	return value{label, settings, e.quantize(quantize), e.subtable("init")}, ok
}

// outKey is a key that cells must not set.
const (
	outKey    = "train.out"
	outIsOurs = outKey + " is chosen by the study"
)

// assign returns settings that set all keys to raw, with the position of key at in the file.
func (r *reader) assign(keys []string, at string, raw any) []plaintoml.Setting {
	place := r.ErrorAt(at, "")
	return lists.Map(keys, func(key string) plaintoml.Setting {
		return plaintoml.Setting{Key: key, Value: raw, File: place.File, Line: place.Line}
	})
}

// settings returns the settings in the subtable set.
func (t *table) settings() []plaintoml.Setting {
	values, _ := t.values["set"].(map[string]any)
	list := t.Settings(t.key("set"), values)
	for _, s := range list {
		if s.Key == outKey {
			t.report(t.key("set"), "leave it out", outIsOurs)
		}
	}
	return list
}

// plan is a cell before its configuration is resolved.
type plan struct {
	labels   map[string]string
	settings []plaintoml.Setting
	quantize *Quantize
	init     *table
}

func (p plan) name(axes []axis) string {
	return strings.Join(Cell{Labels: p.labels}.Of(axisNames(axes)), " · ")
}

// keyOf returns a text that differs between cells with different labels.
func keyOf(labels map[string]string) string { return fmt.Sprintf("%q", labels) }

// readCells returns the plans of the grid without the excluded cells, followed by those of the
// single cells ([[study.cells]]). It adds labels that occur only in these to the axes.
func readCells(study *table, axes []axis, exclude, cells []*table) []plan {
	var excludes []map[string][]string
	for _, t := range exclude {
		where := t.labels(axes, true)
		t.checkLabels(where, axes)
		if len(t.values) == 0 {
			t.report(t.path, `want labels of axes, such as bits = "2"`, "excludes everything")
		}
		excludes = append(excludes, where)
	}
	var plans []plan
	seen := map[string]bool{} // by the key of the labels
	if n := size(axes, nil); n > maxCells {
		most := fmt.Sprintf("want at most %d", maxCells)
		study.report(study.key("axes"), most, "the grid has %.3g cells", n)
		return nil
	}
	for _, p := range grid(axes, nil) {
		if !slices.ContainsFunc(excludes, func(where map[string][]string) bool {
			return len(where) > 0 && Cell{Labels: p.labels}.Matches(where)
		}) {
			plans = append(plans, p)
			seen[keyOf(p.labels)] = true
		}
	}
	for _, t := range cells {
		for _, p := range readCell(t, axes) {
			key := keyOf(p.labels)
			if seen[key] {
				t.report(t.path, "want other labels, or leave it out of the grid with [[study.exclude]]",
					"there are two cells %s", p.name(axes))
				break
			}
			plans = append(plans, p)
			seen[key] = true
		}
	}
	if len(plans) == 0 && len(study.Errs) == 0 { // otherwise there may be cells once these are fixed
		study.report(study.path, "want values for every axis, or [[study.cells]]",
			"the study has no cells")
	}
	return plans
}

// maxCells is the maximum number of cells in a study.
const maxCells = 10_000

// size returns the number of cells in a grid, as a float because it may be very large.
func size(axes []axis, fixed map[string]string) float64 {
	n := 1.0
	for _, a := range axes {
		if _, ok := fixed[a.Name]; !ok {
			n *= float64(len(a.values))
		}
	}
	return n
}

// grid returns a plan for each combination of labels, with the last axis varying fastest. If an
// axis has a label in fixed, only that label is used.
func grid(axes []axis, fixed map[string]string) []plan {
	plans := []plan{{labels: map[string]string{}}}
	for _, a := range axes {
		values := a.values
		if label, ok := fixed[a.Name]; ok {
			values = []value{{label: label}} // a new label has no settings
			for _, v := range a.values {
				if v.label == label {
					values[0] = v
				}
			}
		}
		var next []plan
		for _, p := range plans {
			for _, v := range values {
				labels := maps.Clone(p.labels)
				labels[a.Name] = v.label
				next = append(next, plan{
					labels: labels, settings: slices.Concat(p.settings, v.settings),
					quantize: cmp.Or(v.quantize, p.quantize), init: cmp.Or(v.init, p.init),
				})
			}
		}
		plans = next
	}
	return plans
}

// readCell reads one of [[study.cells]]. It returns a plan for each combination of labels on the
// axes that label does not mention.
func readCell(t *table, axes []axis) []plan {
	var rawQuantize any
	isLabel := schema.Anything("of labels by axis")
	t.read(schema.Key{Name: "label", To: new(map[string]any), Is: isLabel},
		optionalTable("set"), optional("quantize", &rawQuantize), optionalTable("init"))
	settings, quantize := t.settings(), t.quantize(rawQuantize)
	label := t.subtable("label")
	if label == nil {
		return nil
	}
	fixed := map[string]string{}
	for name, labels := range label.labels(axes, false) {
		fixed[name] = labels[0]
		if a := find(axes, name); !slices.Contains(a.Labels, labels[0]) {
			a.Labels = append(a.Labels, labels[0])
		}
	}
	for _, a := range axes {
		if _, ok := fixed[a.Name]; !ok && len(a.values) == 0 {
			t.report(label.path, "want a label for it: the axis has no values",
				"no label of the axis %q", a.Name)
		}
	}
	if n := size(axes, fixed); n > maxCells {
		most := fmt.Sprintf("want labels of more axes: at most %d cells", maxCells)
		t.report(label.path, most, "matches %.3g cells", n)
		return nil
	}
	plans := grid(axes, fixed)
	for i := range plans {
		plans[i].settings = append(plans[i].settings, settings...)
		plans[i].quantize = cmp.Or(quantize, plans[i].quantize)
		plans[i].init = cmp.Or(t.subtable("init"), plans[i].init)
	}
	return plans
}

// resolve returns the cells of the plans, and reports each problem in their configurations once.
func (r *reader) resolve(base *plaintoml.Document, plans []plan, axes []axis) []Cell {
	var found problems
	starts := r.findStarts(plans, axes)
	cells, done := make([]Cell, len(plans)), make([]bool, len(plans))
	var one func(i int)
	one = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		p, cell := plans[i], Cell{Labels: plans[i].labels}
		var initial *config.Initial
		if start := starts[i]; start > 0 {
			cell.start = &cells[start-1]
			if one(start - 1); cell.start.Config == nil { // that is reported already
				return
			}
			name, of := plans[start-1].name(axes), cell.start.Config.Model
			initial = &config.Initial{Dir: "the cell " + name, Run: true, Settings: of}
			cell.Set = append(cell.Set, Setting{Key: "init", Value: name})
		}
		var err error
		if cell.Config, err = config.Resolve(base, p.settings, initial); err != nil {
			found.add(err, p.name(axes))
			return
		}
		if p.quantize != nil {
			cell.Quantize = p.quantize.of(cell.Config)
			cell.Set = append(cell.Set, Setting{Key: "quantize", Value: cell.Quantize.text()})
		}
		for _, s := range p.settings {
			cell.Set = append(cell.Set, Setting{Key: s.Key, Value: s.Text()})
		}
		if cell.start != nil {
			// Until the source cell has a directory, its hash identifies its model in the configuration. So
			// the hash of a cell depends on the cell that it starts from.
			cell.Config, _ = cell.Config.Changed(func(cfg *config.Config) error {
				cfg.Init = "cell:" + cell.start.hash()
				return nil
			})
			if cell.Quantize == nil || cell.Quantize.Of == OfInit {
				cell.made = cell.start
			}
		}
		cells[i] = cell
	}
	for i := range plans {
		one(i)
	}
	r.Errs = append(r.Errs, found.list(len(plans))...)
	if slices.ContainsFunc(cells, func(c Cell) bool { return c.Config == nil }) {
		return nil
	}
	return cells
}

// findStarts returns, for each plan, the index plus 1 of the plan whose model it starts from: the
// one with the labels in init and otherwise its own labels; 0 if there is no init.
func (r *reader) findStarts(plans []plan, axes []axis) []int {
	starts := make([]int, len(plans))
	byLabels := map[string]int{} // as starts
	for i, p := range plans {
		byLabels[keyOf(p.labels)] = i + 1
	}
	named := map[*table]map[string][]string{} // nil: invalid, which has been reported
	var found problems
	for i, p := range plans {
		if p.init == nil {
			continue
		}
		labels, known := named[p.init]
		if !known {
			problems := len(r.Errs)
			labels = p.init.labels(axes, false)
			if p.init.checkLabels(labels, axes); len(r.Errs) > problems {
				labels = nil
			}
			named[p.init] = labels
		}
		if labels == nil {
			continue
		}
		want := maps.Clone(p.labels)
		for axis, list := range labels {
			want[axis] = list[0]
		}
		if starts[i] = byLabels[keyOf(want)]; starts[i] == 0 {
			const hint = "an axis that is left out has the label of the cell itself"
			e := r.ErrorAt(p.init.path, "no cell has these labels").WithHint(hint)
			found.add(e, p.name(axes))
		}
	}
	for i := range plans { // cycles: cells that start from each other
		at := i
		for range plans {
			if at = starts[at] - 1; at < 0 {
				break
			}
		}
		if at >= 0 {
			e := r.ErrorAt(plans[i].init.path, "the cell starts from a model that starts from its own")
			found.add(e, plans[i].name(axes))
			starts[i] = 0
		}
	}
	r.Errs = append(r.Errs, found.list(len(plans))...)
	return starts
}

// isSource reports whether other cells are made from the model of c.
func (s *Study) isSource(c Cell) bool {
	return slices.ContainsFunc(s.Cells, func(other Cell) bool {
		return other.made != nil && other.made.ID == c.ID
	})
}

// Made returns the cell from whose model the model of c is made; nil if there is none.
func (c Cell) Made() *Cell { return c.made }

// depth returns the number of models that must be made before the model of c, one after the other.
func (c Cell) depth() (n int) {
	for of := c.made; of != nil; of = of.made {
		n++
	}
	return n
}
