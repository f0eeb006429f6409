package plaintoml

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Places remembers where every key of a document stands.
type Places struct {
	file string
	line int              // where the text begins, for a key that stands nowhere
	keys map[string]place // by full dotted key; tables at their first mention
}

// place is a line of a file: the document's when that is empty. An override
// stands in the place of a file, without a line.
type place struct {
	line int
	file string
}

// at makes an error placed at the key: where it stands, else at the innermost
// table around it, else where the whole begins.
func (p Places) at(key string) *Error {
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

// ErrorAt makes an error about a key, with the file and line of the key, or the override
// that set it. If the key is not written anywhere, because its default holds, the error
// is placed at its table, or else at line 1. Set Hint on the result to say what would be
// right. As with fmt.Errorf, %w keeps the cause.
func (p Places) ErrorAt(key, format string, args ...any) *Error {
	e := p.at(key)
	err := fmt.Errorf(format, args...)
	e.Msg, e.Cause = err.Error(), errors.Unwrap(err)
	return e
}

// moved notes that a key has a value from there, and nothing below it has another one.
func (p Places) moved(key string, from place) {
	maps.DeleteFunc(p.keys, func(k string, _ place) bool {
		return strings.HasPrefix(k, key) && (k == key || k[len(key)] == '.' || k[len(key)] == '[')
	})
	p.keys[key] = from
}

// File returns the name of the document for messages.
func (p Places) File() string { return p.file }

// Placed returns the name of a table or, where no line of the file has the table, the first key in it that an override
// has set.
func (p Places) Placed(table string) string {
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
