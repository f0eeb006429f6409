package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Error is one problem of a configuration. Its text is
// "file:line: key: message; hint", without the parts that are empty.
type Error struct {
	File string // path of the file, or "--set KEY=VALUE" for an override
	Line int    // from 1; 0 for an override, or when the file could not be read
	Key  string // full dotted key, "" when the problem belongs to no key
	Msg  string // what was found
	Hint string // what would be right

	cause error
}

// Error implements error.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.File != "" && e.Line > 0:
		parts = append(parts, e.File+":"+strconv.Itoa(e.Line))
	case e.File != "":
		parts = append(parts, e.File)
	}
	if e.Key != "" {
		parts = append(parts, e.Key)
	}
	msg := e.Msg
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return strings.Join(append(parts, msg), ": ")
}

// Unwrap returns the cause, such as fs.ErrNotExist for a file that is missing.
func (e *Error) Unwrap() error { return e.cause }

// Errors are all problems of a configuration, in the order of the file, those
// of overrides last. The text has one line for each.
type Errors []*Error

// Error implements error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes errors.Is and errors.As see every problem.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// Sort brings the problems into the order in which they are shown.
func (es Errors) Sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		// An override has no line and comes after the file.
		fromFile := func(e *Error) int {
			if e.Line > 0 {
				return 0
			}
			return 1
		}
		// Overrides keep their order, files do not mix.
		fileOf := func(e *Error) string {
			if e.Line > 0 {
				return e.File
			}
			return ""
		}
		return cmp.Or(
			cmp.Compare(fromFile(a), fromFile(b)),
			cmp.Compare(fileOf(a), fileOf(b)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Msg, b.Msg),
		)
	})
}

// ErrorAt makes an error about a key of this configuration, with the file and
// line where the key stands (or the override that set it). A key that stands
// nowhere, because its default holds, is placed at its table, else at line 1.
// Use [Plugin.Path] for the key of a plugin's parameter. Set Hint on the
// result to say what would be right. As with fmt.Errorf, %w keeps the cause.
func (c *Config) ErrorAt(key, format string, args ...any) *Error {
	e := c.origin.at(key)
	err := fmt.Errorf(format, args...)
	e.Msg, e.cause = err.Error(), errors.Unwrap(err)
	return e
}

// longestCompared bounds the work of Nearest; no key of ours is longer.
const longestCompared = 64

// Nearest returns the known key that the writer most likely meant by key, or
// "" when none is similar. Case is ignored; about one letter in three may
// differ. Of equally near keys the first wins.
func Nearest(key string, known []string) string {
	if len(key) > longestCompared {
		return ""
	}
	best, limit := "", max(1, (utf8.RuneCountInString(key)+1)/3)
	for _, k := range known {
		d := levenshtein.ComputeDistance(strings.ToLower(key), strings.ToLower(k))
		if d <= limit && d < utf8.RuneCountInString(k) {
			best, limit = k, d-1
		}
	}
	return best
}

// QuotedList writes strings as `"a", "b", "c"`.
func QuotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}

// clipped shortens text of unknown length for use in a message.
func clipped(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "..."
}

// oneLine makes text of unknown content fit for a message: short, and without
// line breaks and other control characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, clipped(s, 160))
}
