package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// writer formats values as Python's repr does or, if json is set, as json.dumps.
type writer struct {
	*machine
	out    strings.Builder
	json   bool
	indent string // of JSON, for each level: a newline and white space; "": all in one line
}

// str returns the printed form of a value: Python's str().
func (m *machine) str(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case safe:
		return string(v)
	case *undefined:
		if m.Strict {
			m.fail("%s is undefined", v.what)
		}
		return ""
	}
	w := &writer{machine: m}
	w.write(value, 0)
	return w.out.String()
}

func toJSON(c *call, value any) any {
	w := &writer{machine: c.machine, json: true}
	if truth(c.arg(0)) {
		c.fail("ensure_ascii is not supported")
	}
	if c.arg(1) != nil {
		w.indent = "\n" + c.indentation(1, 0)
	}
	w.write(value, 0)
	return w.out.String()
}

var (
	pythonWords = map[any]string{nil: "None", true: "True", false: "False"}
	jsonWords   = map[any]string{nil: "null", true: "true", false: "false"}
)

func (w *writer) write(value any, depth int) {
	w.step(w.line)
	if depth > maxDepth {
		w.fail("values are nested more than %d deep", maxDepth)
	}
	switch v := value.(type) {
	case nil, bool:
		words := pythonWords
		if w.json {
			words = jsonWords
		}
		w.out.WriteString(words[v])
	case int64:
		w.out.WriteString(strconv.FormatInt(v, 10))
	case longInteger:
		w.make(len(v))
		w.out.WriteString(string(v))
	case float64:
		w.out.WriteString(w.float(v))
	case string:
		w.string(v)
	case []any:
		w.within("[", "]", len(v), depth, func(i int) { w.write(v[i], depth+1) })
	case tuple:
		end := ")"
		if w.json {
			w.write([]any(v), depth)
			return
		} else if len(v) == 1 {
			end = ",)"
		}
		w.within("(", end, len(v), 0, func(i int) { w.write(v[i], depth+1) })
	case *Dict:
		w.within("{", "}", len(v.keys), depth, func(i int) {
			w.string(v.keys[i])
			w.out.WriteString(": ")
			w.write(v.values[v.keys[i]], depth+1)
		})
	case *undefined:
		if w.json {
			w.fail("tojson: %s cannot be written as JSON", typeName(value))
		}
		w.out.WriteString("Undefined")
	default:
		action := "printed"
		if w.json {
			action = "written as JSON"
		}
		w.fail("%s cannot be %s", typeName(value), action)
	}
}

func (w *writer) within(open, end string, n, depth int, element func(i int)) {
	line := func(before string, depth int) { // an indentation begins a line
		if w.indent != "" && n > 0 {
			w.make(len(w.indent) * (depth + 1))
			before = strings.TrimSpace(before) + "\n" + strings.Repeat(w.indent[1:], depth)
		}
		w.out.WriteString(before)
	}
	w.out.WriteString(open)
	for i := range n {
		line([]string{"", ", "}[min(i, 1)], depth+1)
		element(i)
	}
	line("", depth)
	w.out.WriteString(end)
}

// float writes the shortest decimal that identifies a number, with an exponent below 1e-4 and from
// 1e16 on.
func (w *writer) float(x float64) string {
	if math.IsNaN(x - x) {
		w.fail("%v cannot be printed", x)
	}
	if size := math.Abs(x); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

var escapes = map[rune]string{'\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func (w *writer) string(s string) {
	w.make(len(s))
	quote := '"'
	if !w.json && (!strings.Contains(s, "'") || strings.Contains(s, `"`)) {
		quote = '\''
	}
	w.out.WriteRune(quote)
	for _, r := range s {
		escape, escaped := escapes[r]
		switch {
		case r == quote:
			w.out.WriteString(`\` + string(quote))
		case escaped:
			w.out.WriteString(escape)
		case w.json && r == '\b':
			w.out.WriteString(`\b`)
		case w.json && r == '\f':
			w.out.WriteString(`\f`)
		case w.json && r >= ' ', unicode.IsPrint(r):
			w.out.WriteRune(r)
		case w.json:
			fmt.Fprintf(&w.out, `\u%04x`, r)
		case r < 0x100:
			fmt.Fprintf(&w.out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&w.out, `\u%04x`, r)
		default:
			fmt.Fprintf(&w.out, `\U%08x`, r)
		}
	}
	w.out.WriteRune(quote)
}
