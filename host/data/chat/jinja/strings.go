package jinja

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// isSpace reports whether Python counts a character as white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// split implements str.split and str.rsplit. A negative number of times means no limit. Without a
// separator it splits at runs of white space.
func split(s, separator string, times int, fromRight bool) []string {
	index, indexSpace, trim := strings.Index, strings.IndexFunc, strings.TrimLeftFunc
	if fromRight {
		index, indexSpace, trim = strings.LastIndex, strings.LastIndexFunc, strings.TrimRightFunc
	}
	var parts []string
	for ; ; times-- {
		at, size := 0, len(separator)
		if separator == "" {
			if s = trim(s, isSpace); s == "" {
				break
			}
			at = indexSpace(s, isSpace)
			_, size = utf8.DecodeRuneInString(s[max(at, 0):])
		} else {
			at = index(s, separator)
		}
		if at < 0 || times == 0 {
			parts = append(parts, s)
			break
		}
		if fromRight {
			parts, s = append(parts, s[at+size:]), s[:at]
		} else {
			parts, s = append(parts, s[:at]), s[at+size:]
		}
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return parts
}

// Python changes case by Unicode's full mappings, in which a character may become several.

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	// The lower case of a final sigma depends on what precedes it.
	rest := strings.TrimPrefix(lower(s), lower(s[:size]))
	return cases.Title(language.Und, cases.NoLower).String(s[:size]) + rest
}

var lineForm = func() *regexp.Regexp {
	const ends = `\n\v\f\r\x1c-\x1e\x{85}\x{2028}\x{2029}`
	return regexp.MustCompile(`[^` + ends + `]*(\r\n|[` + ends + `]|$)`)
}()

// splitLines is Python's str.splitlines.
func splitLines(s string, keepEnds bool) (lines []string) {
	for s != "" {
		m := lineForm.FindStringSubmatchIndex(s)
		end := m[2]
		if keepEnds {
			end = m[3]
		}
		lines, s = append(lines, s[:end]), s[m[3]:]
	}
	return lines
}

var casedLetters = regexp.MustCompile(`[\p{Lu}\p{Ll}\p{Lt}]+`)

// title is Python's method, whose words are runs of cased letters.
func title(s string) string { return casedLetters.ReplaceAllStringFunc(s, capitalize) }
