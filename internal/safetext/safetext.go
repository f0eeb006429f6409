// Package safetext makes untrusted text safe to print: plugin output, names and contents of files,
// and error messages that quote any of these.
//
// Terminals interpret control sequences. An escape sequence can clear the screen, retitle the
// window or hide earlier output. A bidirectional override reorders the characters of a line.
// Zero-width characters make different names look the same. Such characters are shown as in Go's
// quoted strings: \x1b, \u202e.
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

// Text returns s with all characters escaped that are neither visible nor spaces. Line breaks and
// tabs are kept.
func Text(s string) string { return escape(s, isShown, goEscape) }

func isShown(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) }

// ShellWord returns a word as a POSIX shell takes it, in single quotes where it needs them.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n\"'`$&|;<>()*?[]{}~#!\\") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Line is like [Text], but also escapes line breaks and tabs. It is for text on a single line.
func Line(s string) string { return escape(s, unicode.IsGraphic, goEscape) }

// Words is like [Line], but with spaces, and no two of them, in place of control characters.
func Words(s string) string {
	return Line(strings.Join(strings.FieldsFunc(Valid(s), func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r)
	}), " "))
}

// Markdown returns s as one line of Markdown that shows it as it is.
func Markdown(s string) string {
	var b strings.Builder
	for _, r := range Words(s) {
		if strings.ContainsRune("\\`*_{}[]<>#|~&$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// JSON escapes characters of a JSON document as [Text] does, without changing the values in it.
func JSON(s string) string { return escape(s, isShown, jsonEscape) }

// Clip shortens s to about most bytes, and says so by an ellipsis.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Message shortens an error message, which may quote any text: long lines, and then the whole, lose
// what is in the middle, for the end often says what would be right.
func Message(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = ends(line, 2000)
	}
	return ends(strings.Join(lines, "\n"), 20000)
}

func ends(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Clip(s, most*3/4) + strings.ToValidUTF8(s[len(s)-most/4:], "")
}

// escape replaces unwanted characters and invalid UTF-8 in s.
func escape(s string, wanted func(rune) bool, escaped func(character string) string) string {
	first := strings.IndexFunc(s, func(r rune) bool { return !wanted(r) || r == utf8.RuneError })
	if first < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:first])
	for rest := s[first:]; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if !wanted(r) || r == utf8.RuneError && size == 1 {
			b.WriteString(escaped(rest[:size]))
		} else {
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return b.String()
}

// Valid returns s with each maximal subpart of an ill-formed sequence replaced by U+FFFD (Unicode,
// section 3.9), as decoders of tokenizers and of Python do.
func Valid(s string) string {
	var b strings.Builder
	for rest := s; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		for r == utf8.RuneError && size < len(rest) && !utf8.FullRuneInString(rest[:size+1]) {
			size++
		}
		b.WriteRune(r)
		rest = rest[size:]
	}
	return b.String()
}

// goEscape escapes a character or an invalid byte as in Go's quoted strings.
func goEscape(character string) string { return strings.Trim(strconv.Quote(character), `"`) }

func jsonEscape(character string) string {
	r, _ := utf8.DecodeRuneInString(character)
	if r < 0x10000 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

// Writer writes to w, escaping its input as [Text] does. A character must not be split between two
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
