package jinja

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
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

// strip removes white space, or the characters of a set, from the ends of a string.
func strip(s string, chars any, left, right bool) string {
	cut := isSpace
	if set, ok := chars.(string); ok {
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// split is str.split, or rsplit: at most times splits, negative for no bound.
func split(s string, separator any, times int64, fromRight bool) []string {
	sep, ok := separator.(string)
	if !ok {
		return fields(s, times, fromRight)
	}
	if times < 0 {
		return strings.Split(s, sep)
	}
	if !fromRight {
		return strings.SplitN(s, sep, int(min(times, int64(len(s)))+1))
	}
	var parts []string
	for ; times > 0; times-- {
		at := strings.LastIndex(s, sep)
		if at < 0 {
			break
		}
		parts = append([]string{s[at+len(sep):]}, parts...)
		s = s[:at]
	}
	return append([]string{s}, parts...)
}

// fields splits at stretches of white space.
func fields(s string, times int64, fromRight bool) []string {
	if times < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; times-- {
			at := strings.LastIndexFunc(s, isSpace)
			if at < 0 || times == 0 {
				return append([]string{s}, parts...)
			}
			_, size := utf8.DecodeRuneInString(s[at:])
			parts = append([]string{s[at+size:]}, parts...)
			s = strings.TrimRightFunc(s[:at], isSpace)
		}
		return parts
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; times-- {
		at := strings.IndexFunc(s, isSpace)
		if at < 0 || times == 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:at])
		s = strings.TrimLeftFunc(s[at:], isSpace)
	}
	return parts
}

func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		at := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if at < 0 {
			return append(lines, s)
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		end := at
		if keep {
			end += size
		}
		lines = append(lines, s[:end])
		s = s[at+size:]
	}
	return lines
}

// Python changes case by the full mappings of Unicode, in which a character may become several.

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func titleCase(r string) string { return cases.Title(language.Und, cases.NoLower).String(r) }

func capitalize(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	// What becomes of a sigma at the end depends on what stands before it.
	return titleCase(s[:size]) + strings.TrimPrefix(lower(s), lower(s[:size]))
}

// title is Python's method: the first letter of each word is made large; a word is a stretch of
// letters that have cases.
func title(s string) string {
	var b strings.Builder
	small := lower(s)
	within := false
	for _, r := range s {
		one := lower(string(r))
		if strings.HasPrefix(small, "ς") && one == "σ" { // at the end of a word
			one = "ς"
		}
		small = strings.TrimPrefix(small, one)
		if within {
			b.WriteString(one)
		} else {
			b.WriteString(titleCase(string(r)))
		}
		within = unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
	}
	return b.String()
}

var wordStart = regexp.MustCompile(`[-\s({\[<]+`)

// titleFilter is Jinja's filter: words are what stands between blanks, hyphens and opening
// brackets.
func titleFilter(s string) string {
	var b strings.Builder
	word := func(text string) {
		_, size := utf8.DecodeRuneInString(text)
		b.WriteString(upper(text[:size]) + lower(text[size:]))
	}
	at := 0
	for _, gap := range wordStart.FindAllStringIndex(s, -1) {
		word(s[at:gap[0]])
		b.WriteString(s[gap[0]:gap[1]])
		at = gap[1]
	}
	word(s[at:])
	return b.String()
}
