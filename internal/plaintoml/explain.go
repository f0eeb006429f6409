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

// opening is the line in which the last of a text's opening marks stands.
func (s *spot) opening(mark string) int {
	return 1 + strings.Count(s.text[:max(strings.LastIndex(s.text, mark), 0)], "\n")
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
