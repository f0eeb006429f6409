package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	endToken   tokenKind = iota // of the template
	textToken                   // outside of tags
	openPrint                   // {{
	closePrint                  // }}
	openBlock                   // {%
	closeBlock                  // %}
	nameToken
	stringToken
	integerToken
	floatToken
	operatorToken
)

type token struct {
	kind tokenKind
	text string // without quotes and escapes where it is a string
	line int
}

// lexer cuts a template into tokens. White space around tags is removed here: by the
// signs in the tags ({%-, -%}), and as trim_blocks and lstrip_blocks demand.
type lexer struct {
	source    string
	pos, line int
	tokens    []token
	// lineBegins tells that the tag before, with the white space it has removed, ended in
	// a newline, or that there is none.
	lineBegins bool
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func lex(source string) []token {
	l := &lexer{source: strings.TrimSuffix(newlines.Replace(source), "\n"), line: 1, lineBegins: true}
	for l.pos < len(l.source) {
		l.part()
	}
	l.add(endToken, "")
	return l.tokens
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// advance moves behind the next n bytes.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.source[l.pos:l.pos+n], "\n")
	l.pos += n
}

func (l *lexer) rest() string { return l.source[l.pos:] }

func (l *lexer) part() {
	rest := l.rest()
	at := 0
	for ; ; at++ {
		next := strings.IndexByte(rest[at:], '{')
		if next < 0 {
			l.text(rest, len(rest))
			return
		}
		at += next
		if at+1 < len(rest) && strings.IndexByte("{%#", rest[at+1]) >= 0 {
			break
		}
	}
	kind, signed := rest[at+1], 2
	text := rest[:at]
	switch sign := rest[at+2:]; {
	case strings.HasPrefix(sign, "-"):
		text, signed = strings.TrimRightFunc(text, isSpace), 3
	case strings.HasPrefix(sign, "+"):
		signed = 3
	case kind != '{':
		text = l.stripLine(text)
	}
	l.text(text, at)
	l.advance(signed)
	switch kind {
	case '#':
		l.comment()
	case '{':
		l.add(openPrint, "{{")
		l.tag(closePrint, "}}")
	default:
		l.add(openBlock, "{%")
		l.tag(closeBlock, "%}")
	}
}

// text adds a stretch of text, which stood in the first size bytes of the rest.
func (l *lexer) text(text string, size int) {
	if text != "" {
		l.add(textToken, text)
	}
	l.advance(size)
}

// stripLine removes the white space between the beginning of the line and a block tag.
func (l *lexer) stripLine(text string) string {
	begin := strings.LastIndexByte(text, '\n') + 1
	if (begin > 0 || l.lineBegins) && strings.TrimFunc(text[begin:], isSpace) == "" {
		return text[:begin]
	}
	return text
}

func (l *lexer) comment() {
	end := strings.Index(l.rest(), "#}")
	if end < 0 {
		fail(l.line, "a comment that begins with {# has no end #}")
	}
	sign := byte(0)
	if end > 0 {
		sign = l.rest()[end-1]
	}
	l.advance(end + 2)
	l.afterTag(sign, true)
}

// afterTag removes white space behind a tag whose end has a sign, or the newline behind
// a block's.
func (l *lexer) afterTag(sign byte, block bool) {
	from := l.pos
	switch {
	case sign == '-':
		l.advance(len(l.rest()) - len(strings.TrimLeftFunc(l.rest(), isSpace)))
	case sign != '+' && block && strings.HasPrefix(l.rest(), "\n"):
		l.advance(1)
	}
	l.lineBegins = strings.HasSuffix(l.source[from:l.pos], "\n")
}

func (l *lexer) tag(close tokenKind, end string) {
	var open []byte // brackets that are not closed yet
	for {
		l.advance(len(l.rest()) - len(strings.TrimLeftFunc(l.rest(), isSpace)))
		rest := l.rest()
		if rest == "" {
			fail(l.line, "a tag has no end %s", end)
		}
		if len(open) == 0 {
			sign, unsigned := byte(0), rest
			if rest[0] == '-' || rest[0] == '+' && close == closeBlock {
				sign, unsigned = rest[0], rest[1:]
			}
			if strings.HasPrefix(unsigned, end) {
				l.add(close, end)
				l.advance(len(rest) - len(unsigned) + len(end))
				l.afterTag(sign, close == closeBlock)
				return
			}
		}
		open = l.word(rest, open)
	}
}

// operators are the longer ones first.
var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(", ")", "[", "]", "{", "}", "<", ">", "=", ".", ":", "|", ",", ";"}

func (l *lexer) word(rest string, open []byte) []byte {
	first, _ := utf8.DecodeRuneInString(rest)
	switch {
	case first == '"' || first == '\'':
		l.quoted(rest)
		return open
	case first >= '0' && first <= '9':
		l.number(rest)
		return open
	case first == '_' || unicode.IsLetter(first):
		size := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if size < 0 {
			size = len(rest)
		}
		l.add(nameToken, rest[:size])
		l.advance(size)
		return open
	}
	i := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) })
	if i < 0 {
		fail(l.line, "unexpected character %q", first)
	}
	op := operators[i]
	switch op {
	case "(", "[", "{":
		open = append(open, op[0])
	case ")", "]", "}":
		partner := map[string]byte{")": '(', "]": '[', "}": '{'}[op]
		if len(open) == 0 || open[len(open)-1] != partner {
			fail(l.line, "%q closes nothing", op)
		}
		open = open[:len(open)-1]
	}
	l.add(operatorToken, op)
	l.advance(len(op))
	return open
}

// number reads an integer or a decimal number: digits, which _ may separate.
func (l *lexer) number(rest string) {
	digits := func(from int) int {
		for from < len(rest) && (rest[from] >= '0' && rest[from] <= '9' || rest[from] == '_') {
			from++
		}
		return from
	}
	kind, size := integerToken, digits(0)
	if size+1 < len(rest) && rest[size] == '.' && digits(size+1) > size+1 {
		kind, size = floatToken, digits(size+1)
	}
	if size < len(rest) && (rest[size] == 'e' || rest[size] == 'E') {
		from := size + 1
		if from < len(rest) && (rest[from] == '-' || rest[from] == '+') {
			from++
		}
		if end := digits(from); end > from {
			kind, size = floatToken, end
		}
	}
	l.add(kind, strings.ReplaceAll(rest[:size], "_", ""))
	l.advance(size)
}

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
			out.WriteRune(l.character(s[:min(len(s), 1+digits)], digits))
			s = s[1+digits:]
			continue
		}
		if s[0] == 'N' || s[0] >= '0' && s[0] <= '7' {
			fail(l.line, `the escape \%c is not supported: write the character itself`, s[0])
		}
		out.WriteByte('\\')
	}
	out.WriteString(s)
	return out.String()
}

// character is the one of an escape such as x41, without its backslash.
func (l *lexer) character(escape string, digits int) rune {
	n, err := strconv.ParseUint(escape[1:], 16, 32)
	if err != nil || len(escape) != 1+digits || !utf8.ValidRune(rune(n)) {
		fail(l.line, `a string has the escape \ with %q, which is no character`, escape)
	}
	return rune(n)
}
