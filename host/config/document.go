package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Document is parsed TOML that knows where every key stands: for a file with a schema
// of its own around configurations, which is read as strictly as they are. Keys are
// full and dotted, an element of an array by its index: "study.axes[0].name".
type Document struct {
	file    string
	line    int // of the whole
	values  map[string]any
	lines   map[string]int    // by key; tables at their first mention
	leaves  []leaf            // the `key = value` expressions, in order
	scalars map[string]string // by key: scalars as they are written, strings without quotes
}

// leaf is a `key = value` expression.
type leaf struct {
	key  toml.Key
	name string // full, with indexes
}

// Setting gives a key a value, at a line of a file that messages name.
type Setting struct {
	Key   string // dotted, as in an override
	Value any
	File  string
	Line  int
}

// Text is the value in TOML, on one line.
func (s Setting) Text() string { return inline(s.Value) }

// ReadDocument reads and parses a file; something is what it describes, in words. The
// error is an *[Error].
func ReadDocument(path, something string) (doc *Document, text []byte, err error) {
	if text, err = readFile(path, something); err != nil {
		return nil, nil, err
	}
	doc, err = ParseDocument(path, text)
	return doc, text, err
}

// ParseDocument parses text; path is what messages name. The error is an *[Error].
func ParseDocument(path string, text []byte) (*Document, error) {
	doc, err := parseTOML(path, text)
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// Values is the tree of the document as BurntSushi/toml decodes it.
func (d *Document) Values() map[string]any { return d.values }

// ErrorAt makes an error about a key, as [Config.ErrorAt] does.
func (d *Document) ErrorAt(key, format string, args ...any) *Error {
	e := &Error{File: d.file, Line: d.line, Key: key}
	for k := key; k != ""; k = parentKey(k) {
		if line, ok := d.lines[k]; ok {
			e.Line = line
			break
		}
	}
	err := fmt.Errorf(format, args...)
	e.Msg, e.cause = err.Error(), errors.Unwrap(err)
	return e
}

// Scalar returns a value that is no array or table as it is written, a string without its
// quotes.
func (d *Document) Scalar(key string) (string, bool) {
	text, ok := d.scalars[key]
	return text, ok
}

// Table makes a document of a table of this one, whose lines it keeps.
func (d *Document) Table(key string) *Document {
	values, _ := dig(d.values, strings.Split(key, ".")).(map[string]any)
	out := &Document{file: d.file, line: d.ErrorAt(key, "").Line, values: values,
		lines: map[string]int{}, scalars: map[string]string{}}
	for k, line := range d.lines {
		if rest, below := strings.CutPrefix(k, key+"."); below {
			out.lines[rest] = line
		}
	}
	return out
}

// Settings lists the `key = value` expressions below a table in their order. A key may be
// in quotes as a whole: "method.form" = "off" is method.form = "off".
func (d *Document) Settings(table string, values map[string]any) []Setting {
	var list []Setting
	last := ""
	for _, l := range d.leaves {
		rest, below := strings.CutPrefix(l.name, table+".")
		if !below || last != "" && (strings.HasPrefix(l.name, last+".") || strings.HasPrefix(l.name, last+"[")) {
			continue
		}
		last = l.name
		value := at(values, rest)
		if whole, err := strconv.Unquote(rest); err == nil {
			rest = whole
		}
		list = append(list, Setting{Key: rest, Value: value, File: d.file, Line: d.lines[l.name]})
	}
	return list
}

// Resolve checks and resolves the configuration that the document is with the settings
// in place of what it says there, a later setting over an earlier one. The document stays
// as it is. The error is [Errors].
func (d *Document) Resolve(settings []Setting) (*Config, error) {
	private := *d
	private.values, _ = clone(d.values).(map[string]any)
	dec := newDecoder(&private)
	var errs Errors
	for _, s := range settings {
		if e := dec.set(s); e != nil {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return dec.result()
}

// set puts a setting in the place of what the document says.
func (d *decoder) set(s Setting) *Error {
	fail := func(msg, hint string) *Error {
		return &Error{File: s.File, Line: s.Line, Key: oneLine(s.Key), Msg: msg, Hint: hint}
	}
	path, problem := parseKey(s.Key)
	if problem == nil {
		problem = d.put(path, clone(s.Value), place{s.Line, s.File})
	}
	if problem != nil {
		return fail(problem.Msg, problem.Hint)
	}
	d.expandShort()
	return nil
}

// parseKey reads a dotted key with indexes. The error has no place.
func parseKey(key string) ([]step, *Error) {
	plain, indexes, problem := cutIndexes(key + "=0")
	if problem != nil {
		return nil, problem
	}
	doc, err := parseTOML("", []byte(plain))
	if err != nil || len(doc.leaves) != 1 || strings.ContainsAny(key, "\r\n=#") {
		return nil, &Error{Msg: "not a key", Hint: `want a dotted key of the configuration, such as "train.steps"`}
	}
	return pathOf(doc.leaves[0].key, indexes), nil
}

// at returns the value at a dotted key with indexes, nil for none.
func at(v any, key string) any {
	path, err := parseKey(key)
	if err != nil {
		return nil
	}
	for _, s := range path {
		table, _ := v.(map[string]any)
		v = table[s.key]
		if s.index < 0 {
			continue
		}
		list, _ := tablesOf(v)
		if s.index >= len(list) {
			return nil
		}
		v = list[s.index]
	}
	return v
}

// clone copies a tree of TOML values.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			out[key] = clone(e)
		}
		return out
	case []map[string]any:
		out := make([]map[string]any, len(v))
		for i, e := range v {
			out[i] = clone(e).(map[string]any)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}
