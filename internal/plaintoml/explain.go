package plaintoml

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

// syntaxError describes an error of toml.Decode about the text of a document: what stands there, in which line, and what
// would be right. The parser's own words are those of its grammar, which help nobody who has forgotten an equals sign.
func (d *Document) syntaxError(text string, err error) *Error {
	e := &Error{File: d.file, Line: 1, Cause: err}
	pe, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		e.Msg = "not valid TOML: " + printable(err.Error())
		return e
	}
	// The parser's line is one too large where a line ends too early, and its offset is -1
	// where the first character is none that TOML allows.
	start := min(max(pe.Position.Start, 0), len(text))
	s := spot{line: 1 + strings.Count(text[:start], "\n"), key: pe.LastKey, message: pe.Message, text: text, first: d.lastMention}
	s.before, s.behind = text[strings.LastIndexByte(text[:start], '\n')+1:start], text[start:]
	s.behind, _, _ = strings.Cut(s.behind, "\n")
	s.whole = strings.TrimSpace(s.before + s.behind)
	s.before, s.behind = strings.TrimSpace(s.before), strings.TrimSpace(s.behind)
	e.Msg = printable(strings.TrimSuffix(pe.Message, "."))
	for _, r := range rules {
		if m := r.message.FindStringSubmatch(pe.Message); m != nil {
			e.Msg, e.Hint = r.say(&s, m)
			break
		}
	}
	e.Line, e.Msg = s.line, "not valid TOML: "+e.Msg // a rule may know a better line
	return e
}

// spot is the place of a mistake.
type spot struct {
	line           int
	key            string // the last one before it, dotted
	message        string // of the parser
	whole          string // the line, without blanks around it
	before, behind string // what stands in it on both sides of the mistake
	text           string
	first          func(key string, line int) int
}

// quoted is text of the file in a message: what does not fit is cut off.
func quoted(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return "`" + printable(text) + "`"
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// duplicate describes what is given a second time.
func (s *spot) duplicate(key string) (found, hint string) {
	found, hint = printable(key), "want it once"
	if strings.HasPrefix(s.whole, "[") {
		found, hint = printable(s.whole), "want it once, with all its keys"
	}
	found += " is given a second time"
	if line := s.first(key, s.line); line > 0 {
		found += fmt.Sprintf(", after line %d", line)
	}
	return found, hint
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

// A rule says in plain words what a message of the parser means.
type rule struct {
	message *regexp.Regexp
	say     func(s *spot, m []string) (found, hint string)
}

func when(message string, say func(s *spot, m []string) (found, hint string)) rule {
	return rule{regexp.MustCompile("^" + message), say}
}

const needQuotes = "a string needs quotes"

var rules = []rule{
	when("expected a top-level item to end", (*spot).tooMuch),
	when(`expected '\.' or '=', but got|unexpected EOF; expected key separator`, (*spot).noEquals),
	when(`expected '\.' or '\]' to end table name`, func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " does not end the name of a table", `want "]" behind a name without blanks, such as [train]`
	}),
	when("expected end of table array name", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " does not end the name of a table", `want as many "]" as "["`
	}),
	when("unexpected (?:end of table name|table separator)", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " names no table", "want a name in the brackets, such as [train]"
	}),
	when("unexpected '=': key name appears blank", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " has no key", "want KEY = VALUE"
	}),
	when("unexpected '[.=]'", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " has an empty part in its key", "want KEY = VALUE"
	}),
	when(`Key '(.*)' has already been defined`, func(s *spot, m []string) (string, string) { return s.duplicate(m[1]) }),
	when(`Key '(.*)' was already created and cannot`, (*spot).notAnArray),
	when(`Key '(.*)' was already created as a hash`, func(s *spot, m []string) (string, string) {
		return printable(s.whole) + ", but " + printable(m[1]) + " has a value", "want a value or a table"
	}),
	when("expected value", (*spot).noValue),
	when("floats must start with a digit", func(s *spot, _ []string) (string, string) {
		return quoted(s.behind) + " is no number", "want a digit before the point, such as 0.5"
	}),
	when("expected a digit", func(s *spot, _ []string) (string, string) {
		return quoted(s.behind) + " is no number", "want digits behind the sign; " + needQuotes
	}),
	when(`Invalid float "(.*)": '\.'`, func(_ *spot, m []string) (string, string) {
		return quoted(m[1]) + " is no number", "want digits on both sides of the point"
	}),
	when(`Invalid (?:integer|float)(?: value)?:? "(.*?)"(.*)`, func(_ *spot, m []string) (string, string) {
		return quoted(m[1]) + " is no number" + m[2], ""
	}),
	when(`(\S+) is out of range for (\S+)`, func(_ *spot, m []string) (string, string) {
		if m[2] == "int64" {
			return quoted(m[1]) + " is larger than an integer of TOML can be", "want at most 9223372036854775807 in size"
		}
		return quoted(m[1]) + " is larger than a number of TOML can be", "want at most 1.7e308 in size"
	}),
	when(`not an? (\w+) number`, func(s *spot, m []string) (string, string) {
		return quoted(s.behind) + " is no " + m[1] + " number", ""
	}),
	when("invalid datetime", func(s *spot, _ []string) (string, string) {
		return quoted(s.behind) + " is no date", "want YYYY-MM-DD; " + needQuotes
	}),
	when("strings cannot contain newlines", func(s *spot, _ []string) (string, string) {
		return "the string in " + quoted(s.whole) + " has no closing quote in its line", "want a quote at its end, or three on both sides of a text of several lines"
	}),
	when(`unexpected EOF; expected ['"]('''|"""|'|")`, func(s *spot, m []string) (string, string) {
		s.line = 1 + strings.Count(s.text[:max(strings.LastIndex(s.text, m[1]), 0)], "\n")
		return "the string that begins here has no closing " + m[1], ""
	}),
	when(`(?:invalid escape|expected \w+ hexadecimal digits after|Escaped character)`, func(s *spot, _ []string) (string, string) {
		return `a \ in double quotes begins a special character`, `want \\ for a \, or single quotes: 'C:\runs'`
	}),
	when(`TOML files cannot contain control characters: '0x0d'`, func(s *spot, _ []string) (string, string) {
		return "a carriage return that ends no line", "want lines that end in LF or CR LF"
	}),
	when(`TOML files cannot contain control characters: '(.*)'`, func(s *spot, m []string) (string, string) {
		return "a control character, " + m[1], "want UTF-8 text"
	}),
	when(`expected a comma .*array terminator`, func(s *spot, _ []string) (string, string) {
		return fmt.Sprintf("the array %s %s", s.key, s.continuation()), `want "," between its elements and "]" behind the last`
	}),
	when(`expected a comma or an inline table`, func(s *spot, _ []string) (string, string) {
		return fmt.Sprintf("the table in braces %s behind %s", s.continuation(), s.key), `want "," between its keys and "}" behind the last`
	}),
	when("unexpected EOF(?:; expected value)?$", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " is not finished", "want KEY = VALUE, or [TABLE]"
	}),
	when("unexpected comma", func(s *spot, _ []string) (string, string) {
		return quoted(s.whole) + " has a comma where a value or key should be", "leave it out"
	}),
}

// continuation says what stands behind an element of an array or of a table in braces.
func (s *spot) continuation() string {
	if strings.Contains(s.message, "end of file") {
		return "ends with the text"
	}
	return "goes on with " + quoted(s.behind)
}

// tooMuch describes what stands behind a whole table header or value.
func (s *spot) tooMuch(_ []string) (found, hint string) {
	found = fmt.Sprintf("%s with %s behind it", quoted(s.before), quoted(s.behind))
	digit := func(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }
	switch {
	case strings.HasPrefix(s.before, "["):
		return found, "want each [TABLE] on a line of its own"
	case strings.HasPrefix(s.behind, ",") && digit(strings.TrimLeft(s.behind, ", ")):
		return found, "want a number with a point for its decimals (2.5) and without commas (1000)"
	case strings.HasPrefix(s.behind, ","), s.behind == ";":
		return found, "leave it out"
	case strings.HasPrefix(s.behind, "/"), strings.HasPrefix(s.behind, ";"), strings.HasPrefix(s.behind, "--"):
		return found, "a comment begins with #"
	}
	return found, "want one KEY = VALUE or [TABLE] in a line; " + needQuotes
}

var (
	bareKey  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	twoWords = regexp.MustCompile(`^([A-Za-z0-9_.-]+)\s*[:\s]=?\s*(\S.*)$`)
)

// noEquals describes a line that is neither a key with a value nor a table.
func (s *spot) noEquals(_ []string) (found, hint string) {
	line := s.whole
	parts := twoWords.FindStringSubmatch(line)
	key, _, equals := strings.Cut(line, "=")
	switch {
	case strings.HasPrefix(line, "//"), strings.HasPrefix(line, ";"), strings.HasPrefix(line, "--"):
		return quoted(s.whole) + " is no key", "a comment begins with #"
	case strings.HasPrefix(line, "{"), strings.HasPrefix(line, "("), strings.HasPrefix(line, "<"):
		return quoted(s.whole) + " is no key", "want KEY = VALUE, or [TABLE]"
	case strings.HasPrefix(line, `"`), strings.HasPrefix(line, "'"):
		return quoted(s.whole) + ` has no "=" behind its key`, "want KEY = VALUE"
	case equals && !strings.HasPrefix(s.behind, ":") && !bareKey.MatchString(strings.TrimSpace(key)) && s.before != "":
		return quoted(s.whole) + " has a key of several words", "want KEY = VALUE, with a key of one word"
	case strings.HasSuffix(line, ":"):
		return quoted(s.whole) + ` has no "="`, fmt.Sprintf("want KEY = VALUE, or [%s] for a table", strings.TrimSuffix(line, ":"))
	case parts != nil:
		return quoted(s.whole) + ` has no "="`, fmt.Sprintf("want %s = %s", parts[1], printable(parts[2]))
	}
	return quoted(s.whole) + ` has no "="`, "want KEY = VALUE"
}

// notAnArray describes [[NAME]] where NAME is a table, or the other way round.
func (s *spot) notAnArray(m []string) (found, hint string) {
	found = fmt.Sprintf("%s, but %s is one table", printable(s.whole), m[1])
	if line := s.first(m[1], s.line); line > 0 {
		found += fmt.Sprintf(" since line %d", line)
	}
	return found, fmt.Sprintf("want [[%s]] each time, or [%s] once", m[1], m[1])
}

// noValue describes what stands where a value should be.
func (s *spot) noValue(_ []string) (found, hint string) {
	word := strings.TrimSpace(strings.SplitN(s.behind, "#", 2)[0])
	found = quoted(word) + " is no value"
	switch lower := strings.ToLower(word); {
	case word == "":
		return quoted(s.whole) + " has no value", "want KEY = VALUE; leave the key out for its default"
	case lower == "true", lower == "false":
		return found, "want " + lower
	case lower == "null", lower == "none", lower == "nil":
		return found, "leave the key out for its default"
	case strings.ContainsAny(word[:min(3, len(word))], "“”„‘’«"):
		return found, `want straight quotes: "…"`
	case strings.HasPrefix(word, "="):
		return fmt.Sprintf("%s has more than one \"=\"", quoted(s.whole)), "want KEY = VALUE"
	}
	return found, needQuotes
}
