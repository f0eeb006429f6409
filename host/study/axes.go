package study

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// axis is an axis as the file has it.
type axis struct {
	name   string
	path   string   // in the file
	keys   []string // of the configuration, in the short form
	values []value
	extra  []string // labels that only single cells have
}

// value is a label with its settings.
type value struct {
	label    string
	settings []plaintoml.Setting
	quantize *Quantize // nil: it does not say
}

func (a *axis) labels() []string {
	var list []string
	for _, v := range a.values {
		list = append(list, v.label)
	}
	return append(list, a.extra...)
}

// value returns the value of that label.
func (a *axis) value(label string) (value, bool) {
	i := slices.IndexFunc(a.values, func(v value) bool { return v.label == label })
	if i < 0 {
		return value{}, false
	}
	return a.values[i], true
}

// seeds tells whether the axis is one of replicates by what it sets or by its name.
func (a *axis) seeds() bool {
	if len(a.keys) == 0 {
		return a.name == "seed" || a.name == "seeds"
	}
	return !slices.ContainsFunc(a.keys, func(key string) bool {
		return key != "seed" && !strings.HasSuffix(key, ".seed") && !strings.HasSuffix(key, "_seed")
	})
}

func axisNames(axes []axis) []string {
	var list []string
	for _, a := range axes {
		list = append(list, a.name)
	}
	return list
}

func find(axes []axis, name string) *axis {
	i := slices.IndexFunc(axes, func(a axis) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &axes[i]
}

// readAxes reads [[study.axes]].
func readAxes(study *table) []axis {
	var axes []axis
	for _, t := range study.tables("axes") {
		a := axis{name: t.text("name"), path: t.path}
		switch {
		case !t.has("name"):
			t.report(t.key("name"), `want the axis's name, such as name = "bits"`, "missing")
			study.vague = true
		case find(axes, a.name) != nil:
			t.report(t.key("name"), "want a name of its own for each axis", "there are two axes %q", a.name)
		}
		a.keys = t.texts("key")
		if slices.Contains(a.keys, outKey) {
			t.report(t.key("key"), "want another key", outIsOurs)
		}
		if t.has("values") && t.has("key") == (len(a.keys) > 0) {
			problems := len(study.errs)
			a.values = readValues(t, a)
			study.vague = study.vague || len(study.errs) > problems
		}
		t.finish()
		axes = append(axes, a)
	}
	if !study.has("axes") && study.values != nil {
		study.report(study.key("axes"), "want [[study.axes]] with a name and values", "missing")
	}
	return axes
}

const wantValues = `want values such as [2, 3, 4] with key = "...", or [{label = "...", set = {...}}, ...]`

// readValues reads the values of an axis.
func readValues(t *table, a axis) []value {
	raw := t.get("values")
	var elements []any
	switch list := raw.(type) {
	case nil:
		return nil
	case []any:
		elements = list
	case []map[string]any:
		for _, e := range list {
			elements = append(elements, e)
		}
	default:
		t.wrong("values", raw, strings.TrimPrefix(wantValues, "want "))
		return nil
	}
	if plain := slices.IndexFunc(elements, func(e any) bool { return !schema.IsTable(e) }); plain >= 0 && len(a.keys) == 0 {
		t.report(t.key("key"), `want the key that gets the values, such as key = "quantizer.bits"; or a table for each value: [{label = "...", set = {...}}, ...]`,
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
			t.report(key, "want a label of its own for each value", "there are two values %q", v.label)
			continue
		}
		values = append(values, v)
	}
	return values
}

// readValue reads one value of an axis: {label, set}, or with keys a value for them, or
// {label, value, set}.
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
	defer e.finish()
	var v value
	var ok bool
	if v.label, ok = t.label(e.key("label"), e.get("label")); !ok {
		e.report(e.key("label"), `want the text that stands for the value, such as label = "CAGE"`, "missing")
	}
	if len(a.keys) > 0 {
		if !e.has("value") {
			e.report(e.key("value"), fmt.Sprintf("want the value of %s", strings.Join(a.keys, " and ")), "missing")
		}
		v.settings = t.assign(a.keys, e.key("value"), e.get("value"))
	}
	v.settings, v.quantize = append(v.settings, e.settings("set")...), e.quantize()
	return v, ok
}

// outKey is the one key that no cell can set.
const (
	outKey    = "train.out"
	outIsOurs = outKey + " is chosen by the study"
)

// assign gives every key the value that stands at a key of the file.
func (r *reader) assign(keys []string, at string, raw any) []plaintoml.Setting {
	place := r.doc.ErrorAt(at, "")
	var list []plaintoml.Setting
	for _, key := range keys {
		list = append(list, plaintoml.Setting{Key: key, Value: raw, File: place.File, Line: place.Line})
	}
	return list
}

// settings reads a table of settings.
func (t *table) settings(name string) []plaintoml.Setting {
	set := t.table(name)
	if set == nil {
		return nil
	}
	list := t.doc.Settings(set.path, set.values)
	for _, s := range list {
		if s.Key == outKey {
			t.report(set.path, "leave it out", outIsOurs)
		}
	}
	return list
}
