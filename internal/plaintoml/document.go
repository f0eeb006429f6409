// Package plaintoml reads TOML documents strictly, and reports problems in plain language.
//
// A [Document] records the line of every key. A [Reader] sets variables to a document's values,
// following the schema of its tables (lists of [schema.Key]). It collects problems as [Errors],
// each with the file, line and key, what was found and what is accepted.
package plaintoml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// Document is a parsed TOML document with the line of every key. Keys are full dotted keys in which
// an element of an array has an index: "study.axes[0].name".
type Document struct {
	Positions
	values  map[string]any
	leaves  []leaf            // the `key = value` expressions, sorted by name
	scalars map[string]string // by key: numbers, booleans and dates as written
}

type leaf struct {
	key  toml.Key
	name string // full, with indexes
	at   int    // index in the order of the text
}

func (l leaf) compareName(name string) int { return strings.Compare(l.name, name) }

// Setting is the assignment of a value to a key, with its file and line for messages.
type Setting struct {
	Key   string // dotted, as in an override
	Value any
	File  string
	Line  int
}

// Text returns the value as TOML on one line.
func (s Setting) Text() string { return inline(s.Value) }

const maxSize = 1 << 20

// ReadFile parses the file at path. In messages, content describes the expected content, as in "a
// training run". The error is an *[Error].
func ReadFile(path, content string) (doc *Document, text []byte, err error) {
	fail := func(err error, msg string) (*Document, []byte, error) {
		hint := "want a TOML file that describes " + content
		return nil, nil, &Error{File: path, Msg: msg, Hint: hint, Cause: err}
	}
	text, err = vfs.At(path).ReadSmallFile(maxSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(err, "no such file")
	case errors.Is(err, syscall.EISDIR):
		return fail(nil, "is a directory")
	case errors.Is(err, vfs.ErrTooLarge):
		return fail(nil, fmt.Sprintf("larger than %d bytes", maxSize))
	case err != nil:
		return fail(err, "cannot read: "+Reason(err))
	}
	doc, err = Parse(path, text)
	return doc, text, err
}

// Reason returns the text of a file error without the path, for messages that already contain it.
func Reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// Parse parses text. file is its name in messages. The error is an *[Error].
func Parse(file string, text []byte) (*Document, error) {
	doc, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	return doc, nil
}

func parse(file string, text []byte) (*Document, *Error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	line := 0
	for l := range bytes.Lines(text) {
		if line++; !utf8.Valid(l) {
			return nil, &Error{File: file, Line: line, Msg: "not UTF-8 text",
				Hint: "want a TOML file, which is always UTF-8"}
		}
	}
	doc := New(file, map[string]any{})
	doc.scalars = map[string]string{}
	o := outline{doc: doc, text: text, line: 1, arrays: map[string]int{}}
	if err := o.read(); err != nil {
		return nil, err
	}
	slices.SortFunc(doc.leaves, func(a, b leaf) int { return a.compareName(b.name) })
	if _, err := toml.Decode(string(text), &doc.values); err != nil {
		return nil, syntaxError(file, string(text), err)
	}
	return doc, nil
}

// New returns a document with the given values (see [Document.Values]). file is its name in
// messages.
func New(file string, values map[string]any) *Document {
	p := Positions{file: file, line: 1, keys: map[string]position{}}
	return &Document{Positions: p, values: values}
}

// Value parses a single value, as written after the equals sign.
func Value(text string) (any, error) {
	doc, err := Parse("", []byte("v = "+text))
	if err != nil {
		return nil, err
	}
	return doc.values["v"], nil
}

// Clone returns a copy of d that [Document.Set] can change independently.
func (d *Document) Clone() *Document {
	out := *d
	out.values, _ = clone(d.values).(map[string]any)
	out.keys = maps.Clone(d.keys)
	return &out
}

// Values returns the document's values, as decoded by BurntSushi/toml.
func (d *Document) Values() map[string]any { return d.values }

// Lookup returns the value at a key, given as the parts of a dotted key, or nil if there is none.
func (d *Document) Lookup(key ...string) any { return lookup(d.values, key) }

// Scalar returns the source text of the scalar at a key, without quotes if it is a string. It
// returns false for other values.
func (d *Document) Scalar(key string) (string, bool) {
	if text, ok := d.scalars[key]; ok {
		return text, true
	}
	text, ok := valueAt(d.values, key).(string)
	return text, ok
}

// Table returns a table of d as a document of its own, in which keys have the same positions.
func (d *Document) Table(key string) *Document {
	values, _ := lookup(d.values, strings.Split(key, ".")).(map[string]any)
	out := New(d.file, values)
	out.line = d.at(key).Line
	for k, from := range d.keys {
		if rest, below := strings.CutPrefix(k, key+"."); below {
			out.keys[rest] = from
		}
	}
	return out
}

// Settings lists the `key = value` expressions below a table, in order. A whole dotted key may be
// quoted: "method.form" = "off" means method.form = "off".
func (d *Document) Settings(table string, values map[string]any) []Setting {
	var list []Setting
	last := ""
	for _, l := range d.below(table) {
		inside := strings.HasPrefix(l.name, last+".") || strings.HasPrefix(l.name, last+"[")
		if last != "" && inside {
			continue
		}
		last = l.name
		rest := strings.TrimPrefix(l.name, table+".")
		value := valueAt(values, rest)
		if whole, err := strconv.Unquote(rest); err == nil {
			rest = whole
		}
		list = append(list, Setting{Key: rest, Value: value, File: d.file, Line: d.keys[l.name].line})
	}
	return list
}

// below returns the leaves below a table, in the order of the text.
func (d *Document) below(table string) []leaf {
	first, _ := slices.BinarySearchFunc(d.leaves, table+".", leaf.compareName)
	// In ASCII, "/" follows "."
	end, _ := slices.BinarySearchFunc(d.leaves, table+"/", leaf.compareName)
	list := slices.Clone(d.leaves[first:end])
	slices.SortFunc(list, func(a, b leaf) int { return cmp.Compare(a.at, b.at) })
	return list
}

// Positions holds the position of every key of a document.
type Positions struct {
	file string
	line int                 // first line of the text, for a key that is not in it
	keys map[string]position // by full dotted key; tables at their first mention
}

// position is a line of the document or, if file is set, of that file. For an override, file is the
// text of the override and line is 0.
type position struct {
	line int
	file string
}

// at returns an error at the position of the key. If the document does not have it, the position is
// that of the innermost enclosing table, or else the first line.
func (p Positions) at(key string) *Error {
	e := &Error{File: p.file, Line: p.line, Key: key}
	for k := key; k != ""; k = ParentKey(k) {
		if from, ok := p.keys[k]; ok {
			e.Line = from.line
			if from.file != "" {
				e.File = from.file
			}
			break
		}
	}
	return e
}

// ErrorAt returns an error about a key, with its file and line, or the override that set it. If the
// document does not have the key, because its default applies, the position is that of its table,
// or else line 1. Callers set Hint to say what is accepted. As with fmt.Errorf, %w wraps the cause.
func (p Positions) ErrorAt(key, format string, args ...any) *Error {
	e := p.at(key)
	err := fmt.Errorf(format, args...)
	e.Msg, e.Cause = err.Error(), errors.Unwrap(err)
	return e
}

// setPosition sets the position of a key, and deletes the positions of the keys below it.
func (p Positions) setPosition(key string, from position) {
	maps.DeleteFunc(p.keys, func(k string, _ position) bool {
		return strings.HasPrefix(k, key) && (k == key || k[len(key)] == '.' || k[len(key)] == '[')
	})
	p.keys[key] = from
}

// setBelow sets the positions of the keys in the tables of a value.
func (p Positions) setBelow(key string, value any, from position) {
	if table, ok := value.(map[string]any); ok {
		for name, v := range table {
			p.keys[JoinKey(key, name)] = from
			p.setBelow(JoinKey(key, name), v, from)
		}
	} else if list, ok := schema.TablesOf(value); ok {
		for i, table := range list {
			p.keys[Indexed(key, i)] = from
			p.setBelow(Indexed(key, i), table, from)
		}
	}
}

// File returns the document's name in messages.
func (p Positions) File() string { return p.file }

// Has reports whether the document or an override sets the key.
func (p Positions) Has(key string) bool {
	_, ok := p.keys[key]
	return ok
}

// TableKey returns the key at which errors about a table are reported. It is the table or, if only
// overrides set keys of the table, the first of these keys.
func (p Positions) TableKey(table string) string {
	if _, ok := p.keys[table]; ok {
		return table
	}
	for _, key := range slices.Sorted(maps.Keys(p.keys)) {
		if strings.HasPrefix(key, table+".") {
			return key
		}
	}
	return table
}

// Error is a problem in a document. Its text is "file:line: key: message; hint", without empty
// parts.
type Error struct {
	File string // path of the file, or "--set KEY=VALUE" for an override
	Line int    // from 1; 0 for an override, or when the file could not be read
	Key  string // full dotted key; "" if the problem is not about a key
	Msg  string // what was found
	Hint string // what would be right

	Cause error // such as fs.ErrNotExist for a missing file; it may be nil
}

// Error implements error.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.File != "" && e.Line > 0:
		parts = append(parts, e.File+":"+strconv.Itoa(e.Line))
	case e.File != "":
		parts = append(parts, e.File)
	}
	if e.Key != "" {
		parts = append(parts, e.Key)
	}
	msg := e.Msg
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return strings.Join(append(parts, msg), ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// WithHint sets Hint and returns e.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// Errors lists all problems of a document, in the order of the file, followed by those of
// overrides. Its text has one line per problem.
type Errors []*Error

// Error implements the error interface.
func (es Errors) Error() string {
	lines := lists.Map(es, (*Error).Error)
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems, for errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	return lists.Map(es, func(e *Error) error { return e })
}

// Sort sorts the problems in display order.
func (es Errors) Sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		byFile := 0
		switch {
		case a.Line > 0 && b.Line > 0: // errors have one file; overrides keep their order
			byFile = cmp.Compare(a.File, b.File)
		case a.Line > 0 || b.Line > 0: // an override has no line and comes after the file
			byFile = cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(byFile, cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Msg, b.Msg))
	})
}

// oneLine shortens untrusted text for a message, and replaces control characters such as line
// breaks.
func oneLine(s string) string { return printable(schema.Clipped(s, 160)) }

func syntaxError(file, text string, err error) *Error {
	e := &Error{File: file, Line: 1, Msg: err.Error(), Cause: err}
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		// Do not use Position.Line: it is one too large if a line ends too early. Start is -1 if
		// the first character is invalid.
		start := min(max(pe.Position.Start, 0), len(text))
		e.Line, e.Msg = 1+strings.Count(text[:start], "\n"), pe.Message
		if strings.HasPrefix(pe.Message, "expected value") {
			e.Hint = "a string needs quotes"
		}
	}
	e.Msg = "not valid TOML: " + printable(strings.TrimSuffix(e.Msg, "."))
	return e
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
