package plaintoml

import (
	"errors"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

func syntaxError(file, text string, err error) *Error {
	e := &Error{File: file, Line: 1, Msg: err.Error(), Cause: err}
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		// Position.Line is one too large where a line ends too early, and Start is -1 where
		// the first character is none that TOML allows.
		start := min(max(pe.Position.Start, 0), len(text))
		e.Line, e.Msg = 1+strings.Count(text[:start], "\n"), pe.Message
		if strings.HasPrefix(pe.Message, "expected value") {
			e.Hint = "a string needs quotes"
		}
	}
	e.Msg = "not valid TOML: " + printable(strings.TrimSuffix(e.Msg, "."))
	return e
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
