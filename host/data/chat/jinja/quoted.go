package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// quoted reads a string between quotes, with the escapes of Python.
func (l *lexer) quoted(rest string) {
	end := 1
	for ; end < len(rest) && rest[end] != rest[0]; end++ {
		if rest[end] == '\\' {
			end++
		}
	}
	if end >= len(rest) {
		fail(l.line, "a string that begins with %c has no end", rest[0])
	}
	l.add(stringToken, l.unescape(rest[1:end]))
	l.advance(end + 1)
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape resolves the escapes of a string. An unknown one stands for itself.
func (l *lexer) unescape(s string) string {
	var out strings.Builder
	for s != "" {
		at := strings.IndexByte(s, '\\')
		if at < 0 || at+1 == len(s) {
			break
		}
		out.WriteString(s[:at])
		s = s[at+1:]
		if text, ok := simpleEscapes[s[0]]; ok {
			out.WriteString(text)
			s = s[1:]
			continue
		}
		if digits, ok := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]; ok {
			out.WriteRune(l.character(s, 1, digits, 16))
			s = s[1+digits:]
			continue
		}
		if s[0] == 'N' {
			fail(l.line, `the escape \N is not supported: write the character itself`)
		}
		octal := 0
		for octal < 3 && octal < len(s) && s[octal] >= '0' && s[octal] <= '7' {
			octal++
		}
		if octal > 0 {
			out.WriteRune(l.character(s, 0, octal, 8))
			s = s[octal:]
			continue
		}
		out.WriteByte('\\')
	}
	out.WriteString(s)
	return out.String()
}

// character is the one whose number stands in digits of an escape, which begin at from.
func (l *lexer) character(s string, from, digits, base int) rune {
	if len(s) >= from+digits {
		n, err := strconv.ParseUint(s[from:from+digits], base, 32)
		if err == nil && n <= utf8.MaxRune && utf8.ValidRune(rune(n)) {
			return rune(n)
		}
	}
	fail(l.line, `a string has the escape \ with %q, which is no character`, s[:min(len(s), from+digits)])
	return 0
}
