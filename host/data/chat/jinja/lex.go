package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	endToken  tokenKind = iota // of the template
	textToken                  // outside of tags
	tagToken                   // {{, }}, {% or %}
	nameToken
	stringToken
	numberToken
	operatorToken
)

type token struct {
	kind tokenKind
	text string // a string is unquoted and unescaped
	line int
}

var (
	newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")
	tagStart = regexp.MustCompile(`\{[{%#]`)
	rawForm  = regexp.MustCompile(`^\s*raw\s*(?:-%\}\s*|%\})`)
	rawEnd   = regexp.MustCompile(`\{%[-+]?\s*endraw\s*([-+]?)%\}`)
	// tokenForm has one group each for a name, a string, a number and an operator.
	tokenForm = regexp.MustCompile(`(?s)^(?:` +
		`([\pL_][\pL\p{Nd}_]*)|` +
		`('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|` +
		`([0-9][0-9_]*(?:\.[0-9_]+)?(?:[eE][-+]?[0-9_]+)?)|` +
		`(\*\*|//|==|!=|>=|<=|[-+*/%~()\[\]{}<>=.:|,;]))`)
)

// lexer divides a template into tokens. It removes white space around tags as their signs ({%-,
// -%}) and the options trim_blocks and lstrip_blocks require.
type lexer struct {
	rest   string
	line   int
	tokens []token
	// lineBegins reports whether the text so far is empty or ends in a newline, counting the white
	// space that was removed after its last tag.
	lineBegins bool
}

func lex(source string) []token {
	source = strings.TrimSuffix(newlines.Replace(source), "\n")
	l := &lexer{rest: source, line: 1, lineBegins: true}
	for l.rest != "" {
		start := tagStart.FindStringIndex(l.rest)
		if start == nil {
			l.add(textToken, l.rest)
			l.advance(len(l.rest))
			break
		}
		kind := l.text(start[0])
		raw := rawForm.FindStringSubmatch(l.rest)
		switch {
		case kind == '%' && raw != nil:
			l.advance(len(raw[0]))
			l.lineBegins = strings.HasSuffix(raw[0], "\n")
			end := rawEnd.FindStringSubmatchIndex(l.rest)
			if end == nil {
				fail(l.line, "{%% raw %%} without {%% endraw %%}")
			}
			after, sign := l.rest[end[1]:], l.rest[end[2]:end[3]]
			l.text(end[0])
			l.advance(len(l.rest) - len(after))
			l.afterTag(sign, true)
		case kind == '#':
			body, _, found := strings.Cut(l.rest, "#}")
			if !found {
				fail(l.line, "a comment without #} at its end")
			}
			l.advance(len(body) + 2)
			l.afterTag(body[max(len(body)-1, 0):], true)
		case kind == '{':
			l.add(tagToken, "{{")
			l.tag("}}")
		default:
			l.add(tagToken, "{%")
			l.tag("%}")
		}
	}
	l.add(endToken, "")
	return l.tokens
}

// text adds the text of n bytes before a tag, and advances behind the tag's beginning. It returns
// the kind of the tag: {, % or #.
func (l *lexer) text(n int) (kind byte) {
	text, kind, sign := l.rest[:n], l.rest[n+1], l.rest[n+2:]
	size := 2
	switch {
	case strings.HasPrefix(sign, "-"):
		text, size = strings.TrimRightFunc(text, isSpace), 3
	case strings.HasPrefix(sign, "+"):
		size = 3
	case kind != '{': // white space between the beginning of the line and a block is removed
		begin := strings.LastIndexByte(text, '\n') + 1
		blank := strings.TrimFunc(text[begin:], isSpace) == ""
		if blank && (begin > 0 || l.lineBegins) {
			text = text[:begin]
		}
	}
	if text != "" {
		l.add(textToken, text)
	}
	l.advance(n + size)
	return kind
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) advance(n int) {
	l.line += strings.Count(l.rest[:n], "\n")
	l.rest = l.rest[n:]
}

func (l *lexer) skipSpace() {
	l.advance(len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)))
}

// afterTag removes white space after a tag that ends with "-", or the newline after a block.
func (l *lexer) afterTag(sign string, block bool) {
	before := l.rest
	switch {
	case sign == "-":
		l.skipSpace()
	case sign != "+" && block && strings.HasPrefix(l.rest, "\n"):
		l.advance(1)
	}
	l.lineBegins = strings.HasSuffix(before[:len(before)-len(l.rest)], "\n")
}

func (l *lexer) tag(end string) {
	block := end == "%}"
	var open []byte // the expected closing brackets, the next one last
	for {
		l.skipSpace()
		if l.rest == "" {
			fail(l.line, "a tag without %s at its end", end)
		}
		if len(open) == 0 {
			sign := ""
			if l.rest[0] == '-' || l.rest[0] == '+' && block {
				sign = l.rest[:1]
			}
			if strings.HasPrefix(l.rest[len(sign):], end) {
				l.add(tagToken, end)
				l.advance(len(sign) + len(end))
				l.afterTag(sign, block)
				return
			}
		}
		groups := tokenForm.FindStringSubmatch(l.rest)
		if groups == nil {
			first, _ := utf8.DecodeRuneInString(l.rest)
			if first == '"' || first == '\'' {
				fail(l.line, "a string without %c at its end", first)
			}
			fail(l.line, "unexpected character %q", first)
		}
		switch size := len(groups[0]); {
		case groups[1] != "":
			l.add(nameToken, groups[1])
		case groups[2] != "":
			l.add(stringToken, l.unescape(groups[2][1:size-1]))
		case groups[3] != "":
			l.add(numberToken, strings.ReplaceAll(groups[3], "_", ""))
		default:
			switch op := groups[4]; op {
			case "(":
				open = append(open, ')')
			case "[", "{":
				open = append(open, op[0]+2)
			case ")", "]", "}":
				if len(open) == 0 || open[len(open)-1] != op[0] {
					fail(l.line, "unmatched %q", op)
				}
				open = open[:len(open)-1]
			}
			l.add(operatorToken, groups[4])
		}
		l.advance(len(groups[0]))
	}
}

var (
	escapeForm = regexp.MustCompile(
		`(?s)\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)`)
	simpleEscapes = map[string]string{"\n": "", `\`: `\`, "'": "'", `"`: `"`,
		"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
)

// unescape replaces Python's escape sequences in a string. Unknown ones are kept.
func (l *lexer) unescape(s string) string {
	return escapeForm.ReplaceAllStringFunc(s, func(escape string) string {
		text, ok := simpleEscapes[escape[1:]]
		switch {
		case ok:
			return text
		case escape[1] == 'N' || escape[1] >= '0' && escape[1] <= '7':
			fail(l.line, "the escape %s is not supported: write the character itself", escape)
		case strings.IndexByte("xuU", escape[1]) >= 0:
			n, err := strconv.ParseUint(escape[2:], 16, 32)
			if err != nil || !utf8.ValidRune(rune(n)) {
				fail(l.line, "the escape %s is not a character", escape)
			}
			return string(rune(n))
		}
		return escape
	})
}
