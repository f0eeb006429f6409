package config

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Document is parsed TOML that knows the line of every key. It is for files that have a
// schema of their own and contain configurations, and that are to be read as strictly.
// Keys are full and dotted; an element of an array is given by its index:
// "study.axes[0].name".
type Document struct {
	origin
	values  map[string]any
	leaves  []leaf            // the `key = value` expressions, in order
	scalars map[string]string // by key: numbers, booleans and dates as they are written
}

// leaf is a `key = value` expression.
type leaf struct {
	key  toml.Key
	name string // full, with indexes
}

// Setting gives a value to a key, and records the file and line for messages.
type Setting struct {
	Key   string // dotted, as in an override
	Value any
	File  string
	Line  int
}

// Text returns the value in TOML, on one line.
func (s Setting) Text() string { return inline(s.Value) }

// ReadDocument reads and parses a file; something says, for messages, what the file
// describes. The error is an *[Error].
func ReadDocument(path, something string) (doc *Document, text []byte, err error) {
	if text, err = readFile(path, something); err != nil {
		return nil, nil, err
	}
	doc, err = ParseDocument(path, text)
	return doc, text, err
}

// ParseDocument parses text; path is the name of the file for messages. The error is an
// *[Error].
func ParseDocument(path string, text []byte) (*Document, error) {
	doc, err := parseTOML(path, text)
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// Values returns the tree of the document as BurntSushi/toml decodes it.
func (d *Document) Values() map[string]any { return d.values }

// Scalar returns the text of a value that is not an array or a table, as it is written,
// but a string without its quotes.
func (d *Document) Scalar(key string) (string, bool) {
	if text, ok := d.scalars[key]; ok {
		return text, true
	}
	text, ok := valueAt(d.values, key).(string)
	return text, ok
}

// Table returns a table of the document as a document, which keeps the lines of its keys.
func (d *Document) Table(key string) *Document {
	values, _ := dig(d.values, strings.Split(key, ".")).(map[string]any)
	out := &Document{origin: origin{file: d.file, line: d.at(key).Line, keys: map[string]place{}}, values: values}
	for k, from := range d.keys {
		if rest, below := strings.CutPrefix(k, key+"."); below {
			out.keys[rest] = from
		}
	}
	return out
}

// Settings lists the `key = value` expressions below a table, in order. A key may be
// quoted as a whole: "method.form" = "off" means method.form = "off".
func (d *Document) Settings(table string, values map[string]any) []Setting {
	var list []Setting
	last := ""
	for _, l := range d.leaves {
		rest, below := strings.CutPrefix(l.name, table+".")
		if !below || last != "" && (strings.HasPrefix(l.name, last+".") || strings.HasPrefix(l.name, last+"[")) {
			continue
		}
		last = l.name
		value := valueAt(values, rest)
		if whole, err := strconv.Unquote(rest); err == nil {
			rest = whole
		}
		list = append(list, Setting{Key: rest, Value: value, File: d.file, Line: d.keys[l.name].line})
	}
	return list
}

// Resolve checks and resolves the configuration in the document, with the given settings
// in place of what it says; later settings take precedence over earlier ones. The
// document itself does not change. The error is [Errors].
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
