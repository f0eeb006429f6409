package safetext

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestASCII(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"QuEST + CAGE, 4 bits_a.b~": "QuEST + CAGE, 4 bits_a.b~",
		"λ = 2·10⁻³":                "lambda = 2·10-3",
		"Λ ς Ωω µ ά":                "Lambda sigma Omegaomega mu alpha",
		"café naïve Å Ñ ş":          "cafe naive A N s",
		"cafe\u0301":                "cafe",
		"½ ﬁt ２ ⅷ":                  "1/2 fit 2 viii",
		"Straße, Øre, łódź":         "Straudfe, ud8re, u142odz",
		"日本":                        "u65e5u672c",
		"Ж٣":                        "u416u663",
		"→ “x” –":                   "→ “x” –",
		"−1":                        "-1",
		"a\xffb":                    "a\uFFFDb",
	} {
		if got := ASCII(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestLettersAreToldApart checks that different letters get different replacements. Only accents
// and typographic variants may be lost.
func TestLettersAreToldApart(t *testing.T) {
	seen := map[string]rune{}
	for _, r := range "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩæøłßðþабвгд日本語中文アイ" {
		name := ASCII(string(r))
		if other, ok := seen[name]; ok {
			t.Errorf("%c and %c both become %q", other, r, name)
		}
		seen[name] = r
	}
}

func FuzzASCII(f *testing.F) {
	for _, seed := range []string{"", "λ·é", "\xff\xfe", "ǅ", "ﷺ", "각", "\u0345\u0301"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := ASCII(text)
		if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool {
			return r > unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsNumber(r))
		}) >= 0 {
			t.Errorf("%q becomes %q", text, got)
		}
		if again := ASCII(got); again != got {
			t.Errorf("%q becomes %q, and that %q", text, got, again)
		}
	})
}
