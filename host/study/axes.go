package study

import (
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
	extra  []string // labels of single cells only
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

// seeds reports whether the labels of the axis are replicates, by the keys that it sets or by its name.
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
func readAxes(tables []*table) []axis {
	var axes []axis
	for _, t := range tables {
		a := axis{path: t.path}
		var values any
		t.read(schema.Key{Name: "name", To: &a.name, Is: schema.NonEmpty(`that names the axis, such as name = "bits"`)},
			optional("key", &a.keys), optional("values", &values))
		if a.name == "" {
			t.vague = true
		} else if find(axes, a.name) != nil {
			t.report(t.key("name"), "want a name of its own for each axis", "there are two axes %q", a.name)
		}
		if slices.Contains(a.keys, outKey) {
			t.report(t.key("key"), "want another key", outIsOurs)
		}
		if t.has("values") && t.has("key") == (len(a.keys) > 0) {
			problems := len(t.Errs)
			a.values = readValues(t, a, values)
			t.vague = t.vague || len(t.Errs) > problems
		}
		axes = append(axes, a)
	}
	return axes
}

const wantValues = `want values such as [2, 3, 4] with key = "...", or [{label = "...", set = {...}}, ...]`

// readValues reads the values of an axis.
func readValues(t *table, a axis, raw any) []value {
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
	var rawLabel, rawValue, quantize any
	var set map[string]any
	keys := []schema.Key{{Name: "label", To: &rawLabel, Is: schema.Anything(`the text that stands for the value, such as label = "CAGE"`)}}
	if len(a.keys) > 0 {
		keys = append(keys, schema.Key{Name: "value", To: &rawValue, Is: schema.Anything("the value of " + strings.Join(a.keys, " and "))})
	}
	e.read(append(keys, optional("set", &set), optional("quantize", &quantize))...)
	label, ok := t.label(e.key("label"), rawLabel)
	if !ok && e.has("label") {
		e.wrong("label", rawLabel, "a text or a number")
	}
	v := value{label: label, settings: slices.Concat(t.assign(a.keys, e.key("value"), rawValue), e.settings("set", set)), quantize: e.quantize(quantize)}
	return v, ok
}

// outKey is the one key that no cell can set.
const (
	outKey    = "train.out"
	outIsOurs = outKey + " is chosen by the study"
)

// assign gives every key the value that stands at a key of the file.
func (r *reader) assign(keys []string, at string, raw any) []plaintoml.Setting {
	place := r.ErrorAt(at, "")
	var list []plaintoml.Setting
	for _, key := range keys {
		list = append(list, plaintoml.Setting{Key: key, Value: raw, File: place.File, Line: place.Line})
	}
	return list
}

// settings reads a table of settings.
func (t *table) settings(name string, values map[string]any) []plaintoml.Setting {
	if values == nil {
		return nil
	}
	list := t.Settings(t.key(name), values)
	for _, s := range list {
		if s.Key == outKey {
			t.report(t.key(name), "leave it out", outIsOurs)
		}
	}
	return list
}
