package study

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// reader reads a study file strictly and collects the problems.
type reader struct {
	doc  *plaintoml.Document
	dir  string // of the file, to which the paths of other descriptions in it are relative
	errs plaintoml.Errors

	// vague: an axis has no name, or not all labels that the file gives it. What names axes
	// and labels is not checked then, because it may be right.
	vague bool
}

// report records a problem at a key.
func (r *reader) report(key, hint, format string, args ...any) {
	e := r.doc.ErrorAt(key, format, args...)
	e.Hint = hint
	r.errs = append(r.errs, e)
}

// table is a table of the study file. A key counts as known when it has been asked for.
type table struct {
	*reader
	path   string
	values map[string]any
	known  []string
}

// key is the full key of a key of the table.
func (t *table) key(name string) string { return plaintoml.JoinKey(t.path, name) }

// get returns the raw value of a key, nil for none.
func (t *table) get(name string) any {
	if !slices.Contains(t.known, name) {
		t.known = append(t.known, name)
	}
	return t.values[name]
}

// has tells whether the key is given.
func (t *table) has(name string) bool { return t.get(name) != nil }

// wrong reports a value of the wrong kind.
func (t *table) wrong(name string, raw any, want string) {
	t.report(t.key(name), "want "+want, "found %s", schema.Describe(raw))
}

// finish reports the keys that nobody has asked for.
func (t *table) finish() {
	for name, raw := range t.values {
		if slices.Contains(t.known, name) {
			continue
		}
		what := "unknown key"
		if schema.IsTable(raw) {
			what = "unknown table"
		}
		hint := "known here: " + strings.Join(t.known, ", ")
		if near := schema.Nearest(name, t.known); near != "" {
			hint = "did you mean " + t.key(near) + "?"
		}
		t.report(t.key(name), hint, "%s", what)
	}
}

// read reads a key, if it is given.
func (t *table) read(k schema.Key) {
	raw := t.get(k.Name)
	if raw == nil {
		return
	}
	if found, hint := k.Read(raw); found != "" {
		t.report(t.key(k.Name), hint, "%s", found)
	}
}

// text returns a string, "" when it is absent or wrong. choices are all that it may be;
// none: anything but the empty string.
func (t *table) text(name string, choices ...string) (s string) {
	k := schema.Key{Name: name, To: &s, Is: schema.NonEmpty("that is not empty")}
	if len(choices) > 0 {
		k.Is = schema.OneOf(choices...)
	}
	t.read(k)
	return s
}

// texts returns an array of strings, for which a single one may stand.
func (t *table) texts(name string) (list []string) {
	t.read(schema.Key{Name: name, To: &list})
	return list
}

// flag returns a boolean, false when it is absent.
func (t *table) flag(name string) bool {
	raw := t.get(name)
	b, ok := raw.(bool)
	if raw != nil && !ok {
		t.wrong(name, raw, "true or false")
	}
	return b
}

// count returns an integer in a range, 0 when it is absent.
func (t *table) count(name string, most int64) (n int) {
	t.read(schema.Key{Name: name, To: &n, Is: schema.From(0, most)})
	return n
}

// table returns a table of the table, nil when it is absent or wrong.
func (t *table) table(name string) *table {
	raw := t.get(name)
	values, ok := raw.(map[string]any)
	if raw == nil {
		return nil
	}
	if !ok {
		t.wrong(name, raw, "a table")
		return nil
	}
	return &table{reader: t.reader, path: t.key(name), values: values}
}

// tables returns an array of tables.
func (t *table) tables(name string) []*table {
	raw := t.get(name)
	list, ok := schema.TablesOf(raw)
	if raw != nil && !ok {
		t.wrong(name, raw, "an array of tables [["+t.key(name)+"]]")
	}
	var out []*table
	for i, values := range list {
		out = append(out, &table{reader: t.reader, path: plaintoml.Indexed(t.key(name), i), values: values})
	}
	return out
}

// label returns the text of a value that can be a label: a string, or a number or boolean
// as it is written.
func (r *reader) label(key string, raw any) (string, bool) {
	switch raw := raw.(type) {
	case string:
		return raw, raw != ""
	case int64, float64, bool:
		text, ok := r.doc.Scalar(key)
		return text, ok
	}
	return "", false
}

// labels reads a table of labels by axis, a single one or an array of them. many says
// whether an array may stand.
func (t *table) labels(axes []axis, many bool) map[string][]string {
	out := map[string][]string{}
	for name, raw := range t.values {
		t.known = append(t.known, name)
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

// unknownAxis reports a name that is not one of an axis.
func (r *reader) unknownAxis(key, name string, axes []axis) {
	if r.vague {
		return
	}
	known := axisNames(axes)
	hint := "the axes are " + schema.Quoted(known)
	if near := schema.DidYouMean(name, known); near != "" {
		hint = near
	}
	r.report(key, hint, "there is no axis %q", name)
}

// checkLabels reports labels that no cell has.
func (t *table) checkLabels(where map[string][]string, axes []axis) {
	if t.vague {
		return
	}
	for name, labels := range where {
		a := find(axes, name)
		for _, label := range labels {
			if a == nil || slices.Contains(a.labels(), label) {
				continue
			}
			hint := "it has " + schema.Quoted(a.labels())
			if near := schema.DidYouMean(label, a.labels()); near != "" {
				hint = near
			}
			t.report(t.key(name), hint, "the axis %q has no label %q", name, label)
		}
	}
}
