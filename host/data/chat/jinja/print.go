package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str is what printing a value writes: Python's str().
func (m *machine) str(line int, value any) string {
	switch v := value.(type) {
	case string:
		return v
	case *undefined:
		if m.strict {
			fail(line, "%s is undefined", v.what)
		}
		return ""
	}
	var out strings.Builder
	m.repr(line, &out, value, 0)
	return out.String()
}

// repr writes a value as Python writes it within a list.
func (m *machine) repr(line int, out *strings.Builder, value any, depth int) {
	m.step(line)
	if depth > maxDepth {
		fail(line, "more than %d levels of values within values", maxDepth)
	}
	switch v := value.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		out.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		out.WriteString(strconv.FormatInt(v, 10))
	case float64:
		out.WriteString(formatFloat(v))
	case string:
		m.make(line, len(v))
		out.WriteString(quote(v))
	case List:
		out.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				out.WriteString(", ")
			}
			m.repr(line, out, element, depth+1)
		}
		out.WriteByte(']')
	case *Dict:
		out.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				out.WriteString(", ")
			}
			m.repr(line, out, key, depth+1)
			out.WriteString(": ")
			m.repr(line, out, v.values[key], depth+1)
		}
		out.WriteByte('}')
	case *undefined:
		out.WriteString("Undefined")
	default:
		fail(line, "%s cannot be printed", typeName(value))
	}
}

// formatFloat writes a number as Python does: the shortest digits that identify it, with
// an exponent below 1e-4 and from 1e16 on.
func formatFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	size := math.Abs(x)
	if size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote writes a string as a literal of Python.
func quote(s string) string {
	mark := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	var out strings.Builder
	out.WriteRune(mark)
	for _, r := range s {
		switch {
		case r == mark || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	out.WriteRune(mark)
	return out.String()
}
