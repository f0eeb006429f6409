package plaintoml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// explain returns the error message for a text, or "" if the text is valid TOML.
func explain(text string) string {
	_, err := plaintoml.Parse("a.toml", []byte(text))
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "a.toml:")
}

// TestSyntaxErrors checks that an error has the line of the mistake, and a hint if a string lacks
// quotes.
func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a = 1\nlambda  2.0", "2: not valid TOML: expected '.' or '=', but got '2' instead"},
		{"name = adam", "1: not valid TOML: expected value but found \"adam\" instead; a string needs " +
			"quotes"},
		{"steps = 6k", "1: not valid TOML: expected a top-level item to end with a newline, comment, " +
			"or EOF, but got 'k' instead"},
		{"a = 1\n\na = 2", "3: not valid TOML: Key 'a' has already been defined"},
		{"name = \"adam\nb = 2", "1: not valid TOML: strings cannot contain newlines"},
		{"steps = 99999999999999999999",
			"1: not valid TOML: 99999999999999999999 is out of range for int64"},
	} {
		if got := explain(c.text); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// FuzzParse checks that an error has a line number within the text, and a message on one line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"[a][a]", "a  1", "a = \"\"\"x", "a = [1\n2]", "\x00", "a = 1\r"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := plaintoml.Parse("a.toml", []byte(text))
		if err == nil {
			return
		}
		e, ok := errors.AsType[*plaintoml.Error](err)
		if !ok || e.Line < 1 || e.Line > 1+strings.Count(text, "\n") || e.Msg == "" ||
			strings.Contains(e.Error(), "\n") {
			t.Errorf("%q: %+v", text, err)
		}
	})
}
