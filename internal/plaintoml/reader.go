package plaintoml

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
)

// Reader sets variables to the values in a document's tables, and collects problems.
type Reader struct {
	*Document
	Errs Errors

	given map[string]bool // keys that have been read from the document
	bad   map[string]bool // keys with a problem, for which no other problem is reported
}

// NewReader returns a Reader for a document.
func NewReader(doc *Document) *Reader {
	return &Reader{Document: doc, given: map[string]bool{}, bad: map[string]bool{}}
}

// Read reads a table with the given keys, and reports any other key in it. The variable of an
// absent key is set to its default; an absent key that is required is reported.
func (r *Reader) Read(table string, values map[string]any, keys ...schema.Key) {
	r.Each(table, values, keys, func(name string, raw any) {
		known := lists.Map(keys, func(k schema.Key) string { return k.Name })
		r.Unknown(table, name, raw, known)
	})
	for _, k := range keys {
		path := JoinKey(table, k.Name)
		switch _, given := values[k.Name]; {
		case given:
		case k.Default != nil:
			k.Set(k.Default)
		case k.Optional == "" && r.Good(path, table):
			r.Missing(path, k)
		}
	}
}

// Each reads the listed keys of a table, and calls other for each key that is not listed.
func (r *Reader) Each(table string, values map[string]any, keys []schema.Key,
	other func(name string, raw any)) {
	for name, raw := range values {
		i := slices.IndexFunc(keys, func(k schema.Key) bool { return k.Name == name })
		if i < 0 {
			other(name, raw)
			continue
		}
		path := JoinKey(table, name)
		r.given[path] = true
		if found, hint := keys[i].Read(raw); found != "" {
			r.Report(path, found, hint+heading(path, keys[i]))
		}
	}
}

// Unknown reports an unknown key in a table, and suggests the known key that was probably meant.
func (r *Reader) Unknown(table, name string, raw any, known []string) {
	what, hint := "unknown key", "known here: "+strings.Join(known, ", ")
	if schema.IsTable(raw) {
		what = "unknown table"
	}
	if near := schema.Nearest(name, known); near != "" {
		hint = "did you mean " + JoinKey(table, near) + "?"
		r.Excuse(JoinKey(table, near)) // so that it is not reported as missing, too
	}
	r.Report(JoinKey(table, name), what, hint)
}

// Missing reports that a required key is absent.
func (r *Reader) Missing(path string, k schema.Key) {
	hint := "want " + k.Wants() + heading(path, k)
	if k.Doc != "" {
		hint += ": " + k.Doc
	}
	r.Report(path, "missing", hint)
}

// heading returns the TOML heading of a table after a space. It returns "" for other keys and
// within arrays of tables.
func heading(path string, k schema.Key) string {
	switch {
	case strings.Contains(path, "["):
		return ""
	case k.Type() == schema.Table:
		return " [" + path + "]"
	case k.Type() == schema.Tables:
		return " [[" + path + "]]"
	}
	return ""
}

// Report records a problem at a key.
func (r *Reader) Report(key, found, hint string) {
	r.bad[key] = true
	e := r.at(key)
	e.Msg, e.Hint = found, hint
	r.Errs = append(r.Errs, e)
}

// Excuse prevents keys from being reported as missing if another problem is the cause.
func (r *Reader) Excuse(keys ...string) {
	for _, key := range keys {
		r.bad[key] = true
	}
}

// Given reports whether the document contains a key that has been read.
func (r *Reader) Given(key string) bool { return r.given[key] }

// Good reports whether none of the keys has a problem so far.
func (r *Reader) Good(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return r.bad[k] })
}

// Err returns the problems in display order, or nil if there are none.
func (r *Reader) Err() error {
	if len(r.Errs) == 0 {
		return nil
	}
	r.Errs.Sort()
	return r.Errs
}
