// Package safetext makes untrusted text safe to print: plugin output, names of files and
// directories, contents of files, and error messages that quote any of these.
//
// A terminal obeys control sequences. An escape sequence can clear the screen, retitle the window
// or hide earlier output; a bidirectional override shows a line in a different order; zero-width
// characters make two different names look the same. Such characters are shown as in Go's quoted
// strings: \x1b, \u202e.
//
// All output of cage goes through this package, except progress displays, which draw on the
// terminal and use [Line] for untrusted text.
package safetext

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with every character escaped that is neither visible nor a space. Line ends and
// tabs are kept.
func Text(s string) string { return escape(s, isShown, goEscape) }

func isShown(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) }

// Line is [Text] for text that must stay on one line: it also escapes line ends and tabs.
func Line(s string) string { return escape(s, unicode.IsGraphic, goEscape) }

// JSON escapes a JSON document as [Text] does, without changing its meaning.
func JSON(s string) string { return escape(s, isShown, jsonEscape) }

// escape replaces the unwanted characters of s, and bytes that are not UTF-8.
func escape(s string, wanted func(rune) bool, escaped func(r rune, invalid bool) string) string {
	first := strings.IndexFunc(s, func(r rune) bool { return !wanted(r) || r == utf8.RuneError })
	if first < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:first])
	for rest := s[first:]; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		invalid := r == utf8.RuneError && size == 1
		switch {
		case invalid:
			b.WriteString(escaped(rune(rest[0]), true))
		case wanted(r):
			b.WriteString(rest[:size])
		default:
			b.WriteString(escaped(r, false))
		}
		rest = rest[size:]
	}
	return b.String()
}

// goEscape escapes a character, or an invalid byte, as in Go's quoted strings.
func goEscape(r rune, invalid bool) string {
	if invalid {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return strings.Trim(strconv.QuoteRune(r), "'")
}

func jsonEscape(r rune, _ bool) string {
	if r < 0x10000 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

// Writer writes its input to w, escaped as by [Text]. A character must not be split between two
// writes.
type Writer struct{ w io.Writer }

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w} }

// Write implements io.Writer.
func (t *Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
