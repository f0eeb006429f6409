package jinja

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Python changes case by the full mappings of Unicode, in which a character may become several.

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

// titled is the title case of a single character.
func titled(r string) string { return cases.Title(language.Und, cases.NoLower).String(r) }

// capitalize makes the first character large and all others small.
func capitalize(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	// What becomes of a sigma at the end depends on what stands before it.
	return titled(s[:size]) + strings.TrimPrefix(lower(s), lower(s[:size]))
}

// title is Python's method: the first letter of each word is made large; a word is a stretch of letters that have cases.
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
			b.WriteString(titled(string(r)))
		}
		within = unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
	}
	return b.String()
}

var wordStart = regexp.MustCompile(`[-\s({\[<]+`)

// titleFilter is Jinja's filter: words are what stands between blanks, hyphens and opening brackets.
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
