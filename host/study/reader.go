package study

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// reader reads a study file strictly and collects its problems.
type reader struct {
	*plaintoml.Reader
	dir string // directory of the file; other paths in the file are relative to it

	// incomplete reports whether the name or the labels of an axis could not be read. Names of axes
	// and labels are then not checked, because they may be right.
	incomplete bool
}

func (r *reader) report(key, hint, format string, args ...any) {
	r.Report(key, fmt.Sprintf(format, args...), hint)
}

type table struct {
	*reader
	path   string
	values map[string]any
}

func (t *table) key(name string) string { return plaintoml.JoinKey(t.path, name) }

func (t *table) has(name string) bool { return t.values[name] != nil }

func (t *table) read(keys ...schema.Key) { t.Read(t.path, t.values, keys...) }

func (t *table) wrong(name string, raw any, want string) {
	t.report(t.key(name), "want "+want, "found %s", schema.Describe(raw))
}

// subtable returns the table at a key, or nil if there is none.
func (t *table) subtable(name string) *table {
	values, ok := t.values[name].(map[string]any)
	if !ok {
		return nil
	}
	return &table{reader: t.reader, path: t.key(name), values: values}
}

func (t *table) subtables(name string) []*table {
	list, _ := schema.TablesOf(t.values[name])
	out := make([]*table, len(list))
	for i, values := range list {
		out[i] = &table{reader: t.reader, path: plaintoml.Indexed(t.key(name), i), values: values}
	}
	return out
}

// optionalTable and optionalTables describe optional keys that subtable and subtables read.
func optionalTable(name string) schema.Key  { return optional(name, new(map[string]any)) }
func optionalTables(name string) schema.Key { return optional(name, new([]map[string]any)) }

// optional describes a key that may be absent. A string must not be empty.
func optional(name string, to any) schema.Key {
	k := schema.Key{Name: name, To: to, Optional: "none"}
	if k.Type() == schema.Text {
		k.Is = schema.NonEmpty("that is not empty")
	}
	return k
}

func choice(name string, to *string, words ...string) schema.Key {
	return schema.Key{Name: name, To: to, Is: schema.OneOf(words...), Optional: "none"}
}

// label returns the text of a value that can be a label: a string, or a number or boolean as it is
// written in the file.
func (r *reader) label(key string, raw any) (string, bool) {
	switch raw := raw.(type) {
	case string:
		return raw, raw != ""
	case int64, float64, bool:
		text, ok := r.Scalar(key)
		return text, ok
	}
	return "", false
}

// labels reads a table that maps axes to labels: one label each or, if many is set, an array of
// labels.
func (t *table) labels(axes []axis, many bool) map[string][]string {
	out := map[string][]string{}
	for name, raw := range t.values {
		a := find(axes, name)
		if a == nil {
			t.unknownAxis(t.key(name), name, axes)
			continue
		}
		elements, isArray := raw.([]any)
		if !isArray {
			elements = []any{raw}
		}
		if len(elements) == 0 {
			t.wrong(name, raw, "a label of the axis")
		}
		for i, e := range elements {
			key := t.key(name)
			if isArray {
				key = plaintoml.Indexed(key, i)
			}
			label, ok := t.label(key, e)
			if !ok || isArray && !many {
				t.wrong(name, raw, "a label of the axis"+map[bool]string{true: ", or an array of them"}[many])
				break
			}
			out[name] = append(out[name], label)
		}
	}
	return out
}

func (r *reader) unknownAxis(key, name string, axes []axis) {
	if r.incomplete {
		return
	}
	known := axisNames(axes)
	hint := cmp.Or(schema.DidYouMean(name, known), "the axes are "+schema.Quoted(known))
	r.report(key, hint, "there is no axis %q", name)
}

func (t *table) checkLabels(where map[string][]string, axes []axis) {
	if t.incomplete {
		return
	}
	for name, labels := range where {
		a := find(axes, name)
		for _, label := range labels {
			if a == nil || slices.Contains(a.Labels, label) {
				continue
			}
			hint := cmp.Or(schema.DidYouMean(label, a.Labels), "it has "+schema.Quoted(a.Labels))
			t.report(t.key(name), hint, "the axis %q has no label %q", name, label)
		}
	}
}
