package config

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// parseTOML parses text. A failure has file and line.
func parseTOML(file string, text []byte) (*Document, *Error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	line := 0
	for l := range bytes.Lines(text) {
		if line++; !utf8.Valid(l) {
			return nil, &Error{File: file, Line: line, Msg: "not UTF-8 text", Hint: "want a TOML file, which is always UTF-8"}
		}
	}
	doc := &Document{origin: origin{file: file, line: 1, keys: map[string]place{}}, scalars: map[string]string{}}
	o := outline{doc: doc, text: string(text), line: 1, arrays: map[string]int{}}
	if err := o.read(); err != nil {
		return nil, err
	}
	if _, err := toml.Decode(string(text), &doc.values); err != nil {
		return nil, syntaxError(file, string(text), err)
	}
	return doc, nil
}

// syntaxError places an error of the library by its offset: its line is one too large where
// a line ends too early. The offset is -1 where the first character is none that TOML allows.
func syntaxError(file, text string, err error) *Error {
	e := &Error{File: file, Line: 1, Msg: "not valid TOML: " + oneLine(err.Error()), cause: err}
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		e.Line = 1 + strings.Count(text[:min(max(pe.Position.Start, 0), len(text))], "\n")
		e.Msg = "not valid TOML: " + oneLine(pe.Message)
		if strings.HasPrefix(pe.Message, "expected value but found") || strings.HasPrefix(pe.Message, "floats must start") {
			e.Hint = "a string needs quotes"
		}
	}
	return e
}
