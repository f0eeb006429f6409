package config

import (
	"bytes"
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxDepth bounds the parts of a dotted key and the nesting of values. The
// schema needs four. BurntSushi/toml takes quadratic time in the depth, and
// unbounded stack, so the bound is checked before it sees the text.
const maxDepth = 16

// origin remembers where every key of a configuration stands.
type origin struct {
	file string
	line int              // of the whole, for a key that stands nowhere
	keys map[string]place // by full dotted key
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

// forget drops a key and everything below it.
func (o origin) forget(key string) {
	for k := range o.keys {
		if k == key || strings.HasPrefix(k, key+".") || strings.HasPrefix(k, key+"[") {
			delete(o.keys, k)
		}
	}
}

// parentKey cuts the last part off a dotted key, or its index in an array of
// tables. A quoted part may hold dots: then the result is no key at all, and at goes
// on to the next dot.
func parentKey(key string) string {
	if i := strings.LastIndexByte(key, '['); i > 0 && strings.HasSuffix(key, "]") {
		return key[:i]
	}
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

// parseTOML parses text. A failure has file and line.
func parseTOML(file string, text []byte) (*Document, *Error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if i := invalidUTF8(text); i >= 0 {
		return nil, &Error{File: file, Line: 1 + bytes.Count(text[:i], []byte("\n")),
			Msg: "not UTF-8 text", Hint: "want a TOML file, which is always UTF-8"}
	}
	s := scanner{file: file, doc: &Document{file: file, line: 1, lines: map[string]int{}, scalars: map[string]string{}}}
	if err := s.scan(text); err != nil {
		return nil, err
	}
	if _, err := toml.Decode(string(text), &s.doc.values); err != nil {
		e := &Error{File: file, Line: 1, Msg: "not valid TOML: " + oneLine(err.Error()), cause: err}
		var pe toml.ParseError
		if errors.As(err, &pe) {
			e.Line = max(pe.Position.Line, 1)
			e.Msg = "not valid TOML: " + oneLine(pe.Message)
		}
		return nil, e
	}
	return s.doc, nil
}

func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// scanner collects the lines of keys, which BurntSushi/toml does not tell.
type scanner struct {
	file     string
	doc      *Document
	parser   unstable.Parser
	newlines []int          // offsets
	arrays   map[string]int // how many tables [[NAME]] there are so far
}

// location is a key on the way through the file.
type location struct {
	key  toml.Key
	name string // the key dotted, with the indexes in arrays of tables
	line int
}

func (s *scanner) scan(text []byte) *Error {
	for i, c := range text {
		if c == '\n' {
			s.newlines = append(s.newlines, i)
		}
	}
	s.parser.Reset(text)
	s.arrays = map[string]int{}
	var table location
	for s.parser.NextExpression() {
		n := s.parser.Expression()
		var err *Error
		if n.Kind == unstable.KeyValue {
			err = s.keyValue(table, n)
		} else {
			table, err = s.key(location{}, n)
		}
		if err != nil {
			return err
		}
	}
	return s.syntaxError(s.parser.Error())
}

// key records every prefix of the dotted key of an expression at its first mention
// and returns the whole. A key that goes through an array of tables means the last
// of these so far.
func (s *scanner) key(at location, n *unstable.Node) (location, *Error) {
	at.key = slices.Clone(at.key)
	for parts := n.Key(); parts.Next(); {
		at.line = s.line(int(parts.Node().Raw.Offset))
		part := string(parts.Node().Data)
		if at.key = append(at.key, part); len(at.key) > maxDepth {
			return at, s.tooDeep(at.line)
		}
		at.name = joinKey(at.name, part)
		s.mention(at)
		if n.Kind == unstable.ArrayTable && parts.IsLast() {
			s.arrays[at.name]++
		}
		if count := s.arrays[at.name]; count > 0 {
			at.name = indexed(at.name, count-1)
			s.mention(at)
		}
	}
	return at, nil
}

func (s *scanner) mention(at location) {
	if s.doc.lines[at.name] == 0 {
		s.doc.lines[at.name] = at.line
	}
}

func (s *scanner) keyValue(table location, n *unstable.Node) *Error {
	at, err := s.key(table, n)
	if err != nil {
		return err
	}
	s.doc.leaves = append(s.doc.leaves, leaf{at.key, at.name})
	return s.value(at, n.Value(), len(at.key))
}

// value records the keys of inline tables, and refuses what is nested deeper
// than any key of ours could be.
func (s *scanner) value(at location, n *unstable.Node, depth int) *Error {
	if depth > maxDepth {
		return s.tooDeep(at.line)
	}
	if n.Kind != unstable.Array && n.Kind != unstable.InlineTable {
		s.doc.scalars[at.name] = string(n.Data)
		return nil
	}
	i := 0
	for it := n.Children(); it.Next(); i++ {
		var err *Error
		child := it.Node()
		switch {
		case child.Kind == unstable.KeyValue:
			err = s.keyValue(at, child)
		case child.Kind == unstable.InlineTable:
			element := location{key: at.key, name: indexed(at.name, i), line: s.line(int(child.Raw.Offset))}
			s.mention(element)
			err = s.value(element, child, depth+1)
		default:
			element := location{key: at.key, name: indexed(at.name, i), line: at.line}
			err = s.value(element, child, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) line(offset int) int { return 1 + sort.SearchInts(s.newlines, offset) }

func (s *scanner) tooDeep(line int) *Error {
	return &Error{File: s.file, Line: line, Msg: "keys or values are nested too deep",
		Hint: "no key of a configuration has more than three parts"}
}

func (s *scanner) syntaxError(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{File: s.file, Line: 1, Msg: "not valid TOML: " + oneLine(err.Error()), cause: err}
	var pe *unstable.ParserError
	if errors.As(err, &pe) {
		e.Line = s.line(int(s.parser.Range(pe.Highlight).Offset))
	}
	if strings.Contains(e.Msg, "at start of value") {
		e.Hint = "a string needs quotes"
	}
	return e
}
