// Package plaintoml says in plain words why a text is no TOML: what stands there, in
// which line, and what would be right. The parser's own words are those of its grammar,
// which help nobody who has forgotten an equals sign.
package plaintoml

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

// Problem is a mistake in a text.
type Problem struct {
	Line  int    // from 1
	Key   string // of a value of the wrong type, else empty
	Found string
	Hint  string // what would be right; it may be empty
}

// Error writes the problem as `3: key: found; hint`, to be put behind the name of a file
// and a colon.
func (p Problem) Error() string {
	text := strconv.Itoa(p.Line) + ": "
	if p.Key != "" {
		text += p.Key + ": "
	}
	if text += p.Found; p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// Explain describes the error of toml.Decode about a text. first returns the line of the
// first mention of a key above a line, 0 if it is not known; it may be nil.
func Explain(text string, err error, first func(key string, line int) int) Problem {
	pe, ok := errors.AsType[toml.ParseError](err)
	if p, mistyped := wrongType(err); mistyped {
		return p
	}
	if !ok {
		return Problem{Line: 1, Found: "not valid TOML: " + printable(err.Error())}
	}
	if first == nil {
		first = func(string, int) int { return 0 }
	}
	// The parser's line is one too large where a line ends too early, and its offset is -1
	// where the first character is none that TOML allows.
	start := min(max(pe.Position.Start, 0), len(text))
	s := spot{line: 1 + strings.Count(text[:start], "\n"), key: pe.LastKey, message: pe.Message, text: text, first: first}
	s.before, s.behind = text[strings.LastIndexByte(text[:start], '\n')+1:start], text[start:]
	s.behind, _, _ = strings.Cut(s.behind, "\n")
	s.whole = strings.TrimSpace(s.before + s.behind)
	s.before, s.behind = strings.TrimSpace(s.before), strings.TrimSpace(s.behind)
	p := Problem{Line: s.line}
	for _, r := range rules {
		if m := r.message.FindStringSubmatch(pe.Message); m != nil {
			p.Found, p.Hint = r.say(&s, m)
			p.Line, p.Found = s.line, "not valid TOML: "+p.Found
			return p
		}
	}
	p.Found = "not valid TOML: " + printable(strings.TrimSuffix(pe.Message, "."))
	return p
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

// opening is the line in which the last of a text's opening marks stands.
func (s *spot) opening(mark string) int {
	return 1 + strings.Count(s.text[:max(strings.LastIndex(s.text, mark), 0)], "\n")
}

var mistyped = regexp.MustCompile(`^toml: line (\d+)(?: \(last key "(.*)"\))?: ` +
	`(?:incompatible types: TOML value has type (\S+); destination has type (\S+)|expected array length (\d+); got TOML array of length (\d+))`)

// types are the parser's names of types, in plain words.
var types = map[string]string{
	"string": "a string", "int64": "an integer", "integer": "an integer", "float64": "a number with a point", "float": "a number", "bool": "true or false",
	"boolean": "true or false", "[]any": "an array", "slice": "an array", "map[string]any": "a table", "map": "a table", "[]map[string]any": "an array of tables",
	"time.Time": "a date or time",
}

// wrongType describes a value that is TOML, but none for the variable it is meant for.
func wrongType(err error) (Problem, bool) {
	m := mistyped.FindStringSubmatch(err.Error())
	if m == nil {
		return Problem{}, false
	}
	line, _ := strconv.Atoi(m[1])
	if m[5] != "" {
		return Problem{line, m[2], "found an array of " + m[6], "want one of " + m[5]}, true
	}
	return Problem{line, m[2], "found " + cmp.Or(types[m[3]], m[3]), "want " + cmp.Or(types[m[4]], m[4])}, true
}

// again describes what is given a second time.
func (s *spot) again(key string) (found, hint string) {
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
