package safetext_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/safetext"
)

func TestLineAndText(t *testing.T) {
	cases := []struct{ in, line, text string }{
		{"", "", ""},
		{"layers.0.wq ≥ 3 · λ ━ 漢字 🙂", "layers.0.wq ≥ 3 · λ ━ 漢字 🙂", "layers.0.wq ≥ 3 · λ ━ 漢字 🙂"},
		{"a\nb\tc", `a\nb\tc`, "a\nb\tc"},
		{"a\rb", `a\rb`, `a\rb`},
		{"\x1b[2Jgone", `\x1b[2Jgone`, `\x1b[2Jgone`},
		{"\x1b]0;title\x07", `\x1b]0;title\a`, `\x1b]0;title\a`},
		{"\u009b2J", `\u009b2J`, `\u009b2J`}, // CSI in one character
		{"del\x7f nul\x00", `del\x7f nul\x00`, `del\x7f nul\x00`},
		{"a\u202eb\u2066c", `a\u202eb\u2066c`, `a\u202eb\u2066c`},
		{"a\u200bb\u200d\ufeff", `a\u200bb\u200d\ufeff`, `a\u200bb\u200d\ufeff`},
		{"a\u2028b\u2029c\u0085", `a\u2028b\u2029c\u0085`, `a\u2028b\u2029c\u0085`},
		{"tag\U000e0041", `tag\U000e0041`, `tag\U000e0041`},
		{"not\xff\xfeUTF-8", `not\xff\xfeUTF-8`, `not\xff\xfeUTF-8`},
		{"the mark \ufffd stays", "the mark \ufffd stays", "the mark \ufffd stays"},
		{"no break\u00a0here", "no break\u00a0here", "no break\u00a0here"},
	}
	for _, c := range cases {
		if got := safetext.Line(c.in); got != c.line {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.line)
		}
		if got := safetext.Text(c.in); got != c.text {
			t.Errorf("Text(%q) = %q, want %q", c.in, got, c.text)
		}
	}
}

// TestEveryCharacter checks that characters which move the cursor, reorder others or are invisible
// are escaped.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		harmful := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r >= 0x202a &&
			r <= 0x202e || r >= 0x2066 && r <= 0x2069
		if !harmful || !utf8.ValidRune(r) {
			continue
		}
		if got := safetext.Line(string(r)); !strings.HasPrefix(got, `\`) || strings.ContainsRune(got, r) {
			t.Errorf("%U is shown as %q", r, got)
		}
	}
}

func TestJSONKeepsItsMeaning(t *testing.T) {
	in := "a\x7fb\u202e\u2028\u0085\U000e0041\U0001f642 é"
	text, err := json.MarshalIndent(map[string]string{"k": in}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	safe := safetext.JSON(string(text))
	if safetext.Text(safe) != safe {
		t.Errorf("%q is not safe", safe)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(safe), &got); err != nil || got["k"] != in {
		t.Errorf("%s means %q, %v", safe, got["k"], err)
	}
}

func TestMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		" a\n# b\r\n\x1b[2J\u202ec\u2028|": `a \# b \[2J\\u202ec \|`,
		"[a](b) <i> *c* _d_ `e` ~ $f$ &":   `\[a\](b) \<i\> \*c\* \_d\_ ` + "\\`e\\`" + ` \~ \$f\$ \&`,
	} {
		if got := safetext.Markdown(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[31mb\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{safetext.Text(s), safetext.Line(s), safetext.JSON(s)} {
			if !utf8.ValidString(got) || safetext.Text(got) != got {
				t.Errorf("%q is shown as %q", s, got)
			}
		}
	})
}

// TestValid compares with Python's decode(errors="replace").
func TestValid(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"a\xffb":                            "a\ufffdb",
		"\xe2\x80":                          "\ufffd",
		"\xe2\x80a":                         "\ufffda",
		"\xf0\x9f\x92":                      "\ufffd",
		"\xf0\x9f\x92\xf0\x9f":              "\ufffd\ufffd",
		"\xf2\xf2\x89":                      "\ufffd\ufffd",
		"\xf0\x80\x80":                      "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80":                      "\ufffd\ufffd\ufffd",
		"\xc0\xaf":                          "\ufffd\ufffd",
		"\xf4\x90\x80\x80":                  "\ufffd\ufffd\ufffd\ufffd",
		"a\xef\xbf\xbd\xe2\x82\xac":         "a\ufffd€",
		"\x80\x80\xc3\xa9\xc3":              "\ufffd\ufffdé\ufffd",
		"\xfe\xfe\xff\xff":                  "\ufffd\ufffd\ufffd\ufffd",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA": "\ufffd\ufffd\ufffd\ufffdA",
		"\xf5\x80\xe0\x9f\xe0\xa0\xf1\x80\x80\x80\xe2": "\ufffd\ufffd\ufffd\ufffd\ufffd\U00040000\ufffd",
	} {
		if got := safetext.Valid(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	n, err := fmt.Fprintf(safetext.NewWriter(&b), "%s\n", "\x1b[1m")
	if err != nil || n != 5 || b.String() != "\\x1b[1m\n" {
		t.Errorf("wrote %q, %d, %v", b.String(), n, err)
	}
}

// TestMessage checks that a message keeps its beginning and its end.
func TestMessage(t *testing.T) {
	for text, most := range map[string]int{
		"found x, want y": 15,
		"found " + strings.Repeat("é", 1e5) + ", want y":      2000 + len("…"),
		strings.Repeat("found\n", 1e5) + "found x, want y":    20000 + len("…"),
		strings.Repeat("found \xff", 1e5) + "found x, want y": 2000 + len("…"),
	} {
		got := safetext.Message(text)
		if len(got) > most || !strings.HasPrefix(got, "found") || !strings.HasSuffix(got, ", want y") ||
			(len(got) == len(text)) != (got == text) {
			t.Errorf("%.20q becomes %d bytes: %.80q", text, len(got), got)
		}
	}
}

func Example() {
	fmt.Fprintln(safetext.NewWriter(os.Stdout), "runs/\x1b[2Jone")
	fmt.Println(safetext.Line("quest\ncage: all is well"))
	// Output:
	// runs/\x1b[2Jone
	// quest\ncage: all is well
}
