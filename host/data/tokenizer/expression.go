package tokenizer

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A finder calls yield for the matches of a pattern in a text, from left to right. Like the
// reference library, it leaves out empty ones where another match ends.
type finder func(text string, yield func(from, to int) error) error

// Limits of the time for a match, and for each byte of a text: a regular expression may take
// exponential time.
var (
	timePerMatch = 10 * time.Second
	timePerByte  = 20 * time.Microsecond
)

const maxBacktracking = 1 << 22 // integers

// compile returns the finder of a regular expression in the syntax of Oniguruma, the engine of the
// reference library.
func compile(expr string) (find finder, err error) {
	translated, err := translate(expr)
	if err == nil {
		find, err = newFinder(translated)
	}
	if err != nil {
		err = &UnsupportedError{"pre_tokenizer", fmt.Sprintf("the pattern %.200q", expr), err.Error()}
	}
	return find, err
}

func newFinder(expr string) (finder, error) {
	re, err := regexp2.Compile(expr, regexp2.Multiline,
		regexp2.OptionMaxBacktrackingStackSize(maxBacktracking))
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = timePerMatch
	return func(text string, yield func(from, to int) error) (err error) {
		runes := []rune(text)
		last, at, offset := -1, 0, 0 // the end of the last match; offset is that of the character at
		advance := func(to int) int {
			for ; at < to; at++ {
				offset += utf8.RuneLen(runes[at])
			}
			return offset
		}
		limit := time.Now().Add(timePerMatch + time.Duration(len(text))*timePerByte)
		failed := re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
			if index, n, _ := m.GroupRange(0); n > 0 || index != last {
				last = index + n
				err = yield(advance(index), advance(last))
			}
			return err == nil && time.Now().Before(limit)
		})
		if err == nil && (failed != nil || !time.Now().Before(limit)) { // failed has the whole text
			err = fmt.Errorf("the pattern %.200q of the pre_tokenizer takes too long, or too much memory, "+
				"for a text of %d bytes, at character %d", expr, len(text), at)
		}
		return err
	}, nil
}

// The parts of an expression in Oniguruma's syntax that translate understands.
const (
	escapeForm = `\\(?:([pP])\{(\^?)(\w+)\}|u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]{1,6})\}|` +
		`([a-zA-Z])|[^\w])`
)

var (
	partForm = regexp.MustCompile(`(?s)^(?:\(\?i:[a-zA-Z'|\[\]]*\)|\((?:\?(?:[:=!>]|<[=!]))?|` +
		`\[\^?(?:` + escapeForm + `|[^\\\[\]])+\]|` + escapeForm + `|` +
		`\{(?:,\d+|\d+,?\d*)\}[+?]?|[*+?][+?]?|[^\\\[])`)
	escapes = regexp.MustCompile(escapeForm)
	// foldedPairs match one character, such as ß, if case is ignored.
	foldedPairs = regexp.MustCompile(`(?i)ss|ff|fi|fl|st`)
)

// unescape returns what an escape of Oniguruma's syntax is in .NET's, or "" if it is not known.
func unescape(text string, inClass bool) string {
	m := escapes.FindStringSubmatch(text)
	code, _ := strconv.ParseUint("0"+m[4]+m[5], 16, 32)
	_, category := unicode.Categories[m[3]]
	_, script := unicode.Scripts[m[3]]
	switch {
	case m[3] != "" && (!category && !script || m[2] != "" && m[1] == "P"):
		return ""
	case m[2] != "":
		return `\P{` + m[3] + `}`
	case code > math.MaxUint16:
		return string(rune(code))
	case code > 0:
		return fmt.Sprintf(`\u%04x`, code)
	case m[6] == "": // a category, or a literal
		return text
	case !strings.Contains("rntvfaesSdDAzZ", m[6]), inClass && strings.Contains("AzZ", m[6]):
		return "" // \w, \b and others mean something else in .NET
	}
	return text
}

// translate returns a regular expression in the syntax of .NET that matches the same as one in the
// syntax of Oniguruma. What it does not know is an error.
func translate(expr string) (string, error) {
	var out []byte
	var open []int // where groups begin in out
	atom := 0      // where in out the part begins to which a quantifier applies
	for rest := expr; rest != ""; {
		part := partForm.FindString(rest)
		after := rest[len(part):]
		begin, text, known := len(out), part, part != ""
		switch char := (part + " ")[0]; {
		case strings.HasPrefix(part, "(?i:"):
			known = !foldedPairs.MatchString(part)
		case char == '(':
			known = after != "" && !strings.Contains("?*", after[:1])
			open = append(open, begin)
			if part == "(" {
				text = "(?:"
			}
		case char == ')' && len(open) > 0:
			begin = open[len(open)-1]
			open = open[:len(open)-1]
		case char == '[':
			known = !strings.Contains(part, "&&")
			text = escapes.ReplaceAllStringFunc(part, func(escape string) string {
				escape = unescape(escape, true)
				known = known && escape != ""
				return escape
			})
		case char == '\\':
			text = unescape(part, false)
			known = text != ""
		case char == '{' && len(part) > 1:
			begin = atom
			text = strings.Replace(part, "{,", "{0,", 1)
			if bounds, again := strings.CutSuffix(text, "+"); again ||
				strings.HasSuffix(text, "?") && !strings.Contains(text, ",") {
				// Another quantifier follows; in .NET's syntax it would change the meaning of the first one.
				out = slices.Insert(out, atom, []byte("(?:")...)
				text = strings.TrimSuffix(bounds, "?") + ")" + part[len(part)-1:]
			}
		case strings.ContainsRune("*+?", rune(char)):
			begin = atom
		case char == '^':
			text = `(?:\A|(?<=\n)(?!\z))`
		case strings.ContainsRune("{}]", rune(char)):
			text = `\` + part
		}
		if !known {
			return "", fmt.Errorf("cage does not know %.20q in it", rest)
		}
		out, atom, rest = append(out, text...), begin, after
	}
	return string(out), nil
}
