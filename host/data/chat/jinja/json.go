package jinja

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// FromJSON returns the value that a JSON text represents. Mappings keep the order of
// their keys, and numbers that are written as integers are integers. A key that a mapping
// has twice is an error, and so is half of a surrogate pair.
func FromJSON(text []byte) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	value, err := readJSON(dec, 0)
	if err == nil {
		if _, err = dec.ReadToken(); err == nil {
			return nil, errors.New("more text follows the JSON value")
		} else if err == io.EOF {
			return value, nil
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("not JSON: it ends too early")
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return nil, fmt.Errorf("not JSON: at byte %d: the key %q for the second time", syntactic.ByteOffset+1, syntactic.JSONPointer.LastToken())
		}
		at := syntactic.ByteOffset
		hint := plainjson.NoNumber(text, at)
		return nil, fmt.Errorf("not JSON: at byte %d: %w%s", at+1, syntactic.Err, hint)
	}
	return nil, err
}

func readJSON(dec *jsontext.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels of values within values", maxDepth)
	}
	t, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '[':
		list := List{}
		for dec.PeekKind() != ']' {
			element, err := readJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err := dec.ReadToken()
		return list, err
	case '{':
		d := &Dict{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String() // before the next token is read
			value, err := readJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(key, value)
		}
		_, err := dec.ReadToken()
		return d, err
	case '0':
		return readNumber(t.String())
	case '"':
		return t.String(), nil
	case 'n':
		return nil, nil
	}
	return t.Bool(), nil
}

// readNumber returns an integer where the text has neither a fraction nor an exponent.
func readNumber(s string) (number any, err error) {
	if strings.ContainsAny(s, ".eE") {
		number, err = strconv.ParseFloat(s, 64)
	} else {
		number, err = strconv.ParseInt(s, 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("the number %s does not fit into 64 bits", s)
	}
	return number, nil
}

// jsonWriter writes values as Python's json.dumps does with ensure_ascii=False.
type jsonWriter struct {
	c       *calling
	out     strings.Builder
	indent  string // of one level; "" with oneLine
	oneLine bool
}

func toJSON(c *calling, value any) any {
	w := &jsonWriter{c: c, oneLine: true}
	switch indent := c.bind(0, "indent")[0].(type) {
	case nil, absent:
	case string:
		w.indent, w.oneLine = indent, false
	default:
		spaces := int(min(max(c.integer(indent, 0), 0), 100))
		w.indent, w.oneLine = strings.Repeat(" ", spaces), false
	}
	w.write(value, 0)
	return w.out.String()
}

func (w *jsonWriter) write(value any, depth int) {
	w.c.m.step(w.c.line)
	if depth > maxDepth {
		w.c.fail("more than %d levels of values within values", maxDepth)
	}
	switch v := value.(type) {
	case nil:
		w.out.WriteString("null")
	case bool:
		w.out.WriteString(strconv.FormatBool(v))
	case int64:
		w.out.WriteString(strconv.FormatInt(v, 10))
	case float64:
		switch {
		case math.IsNaN(v):
			w.out.WriteString("NaN")
		case math.IsInf(v, 1):
			w.out.WriteString("Infinity")
		case math.IsInf(v, -1):
			w.out.WriteString("-Infinity")
		default:
			w.out.WriteString(formatFloat(v))
		}
	case string:
		w.string(v)
	case List:
		w.within('[', ']', depth, len(v), func(i int) { w.write(v[i], depth+1) })
	case *Dict:
		w.within('{', '}', depth, len(v.keys), func(i int) {
			w.string(v.keys[i])
			w.out.WriteString(": ")
			w.write(v.values[v.keys[i]], depth+1)
		})
	default:
		w.c.fail("%s cannot be written as JSON", typeName(value))
	}
}

func (w *jsonWriter) within(open, end byte, depth, n int, element func(i int)) {
	line := func(depth int) {
		if !w.oneLine && n > 0 {
			w.c.m.make(w.c.line, 1+depth*len(w.indent))
			w.out.WriteString("\n" + strings.Repeat(w.indent, depth))
		}
	}
	w.out.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.out.WriteByte(',')
			if w.oneLine {
				w.out.WriteByte(' ')
			}
		}
		line(depth + 1)
		element(i)
	}
	line(depth)
	w.out.WriteByte(end)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) string(s string) {
	w.c.m.make(w.c.line, len(s))
	w.out.WriteByte('"')
	for _, r := range s {
		switch escape, ok := jsonEscapes[r]; {
		case ok:
			w.out.WriteString(escape)
		case r < ' ':
			fmt.Fprintf(&w.out, `\u%04x`, r)
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}
