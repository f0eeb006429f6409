package config

import (
	"bytes"
	"regexp"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/plaintoml"
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
		return nil, doc.syntaxError(string(text), err)
	}
	return doc, nil
}

// syntaxError describes an error of the library, with the line of an earlier mention of a
// key where that is part of it.
func (d *Document) syntaxError(text string, err error) *Error {
	p := plaintoml.Explain(text, err, d.lastMention)
	return &Error{File: d.file, Line: p.Line, Msg: p.Found, Hint: p.Hint, cause: err}
}

// lastMention is the line where a key, which is without indexes, is mentioned last above
// a line; 0 for none.
func (d *Document) lastMention(key string, line int) int {
	last := 0
	for name, from := range d.keys {
		if indexes.ReplaceAllString(name, "") == key && from.line < line {
			last = max(last, from.line)
		}
	}
	return last
}

var indexes = regexp.MustCompile(`\[\d+\]`)
