package config

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// origin remembers where every key of a document or configuration stands.
type origin struct {
	file string
	line int              // where the text begins, for a key that stands nowhere
	keys map[string]place // by full dotted key; tables at their first mention
}

// place is a line of a file: the configuration's when that is empty. An override
// stands in the place of a file, without a line.
type place struct {
	line int
	file string
}

// at makes an error placed at the key: where it stands, else at the innermost
// table around it, else where the whole begins.
func (o origin) at(key string) *Error {
	e := &Error{File: o.file, Line: o.line, Key: key}
	for k := key; k != ""; k = parentKey(k) {
		if p, ok := o.keys[k]; ok {
			e.Line = p.line
			if p.file != "" {
				e.File = p.file
			}
			break
		}
	}
	return e
}

// ErrorAt makes an error about a key, with the file and line of the key, or the override
// that set it. If the key is not written anywhere, because its default holds, the error
// is placed at its table, or else at line 1. Use [Plugin.Path] for the key of a plugin's
// parameter. Set Hint on the result to say what would be right. As with fmt.Errorf, %w
// keeps the cause.
func (o origin) ErrorAt(key, format string, args ...any) *Error {
	e := o.at(key)
	err := fmt.Errorf(format, args...)
	e.Msg, e.cause = err.Error(), errors.Unwrap(err)
	return e
}

// set notes that a key has a value from there, and nothing below it another one.
func (o origin) set(key string, from place) {
	maps.DeleteFunc(o.keys, func(k string, _ place) bool {
		return strings.HasPrefix(k, key) && (k == key || k[len(key)] == '.' || k[len(key)] == '[')
	})
	o.keys[key] = from
}
