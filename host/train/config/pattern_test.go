package config

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"head", "head", true}, {"head", "heads", false}, {"head", "ahead", false},
		{"layers.0.*", "layers.0.attn.qkv", true}, {"layers.0.*", "layers.01", false}, {"layers.0.*", "layers.0.", true},
		{"*.down", "layers.3.mlp.down", true}, {"*.down", "down", false}, {"*.down", "a.down.input", false},
		{"*", "", true}, {"*", "anything", true}, {"**", "x", true},
		{"layers.*.mlp.*", "layers.10.mlp.w1", true}, {"layers.*.mlp.*", "layers.10.attn.out", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a.c.b.c", true}, {"a*bc*cd", "abcd", false}, {"*a*b*", "ba", false},
		{"layers.?", "layers.1", false}, {"layers.[0]", "layers.0", false}, {"Head", "head", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("matches(%q, %q) = %t", c.pattern, c.name, got)
		}
	}
}

// A pattern means what the regular expression with .* for * means.
func TestMatchesLikeRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(alphabet string, n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 20_000 {
		pattern, name := word("ab.*", 7), word("ab.", 9)
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got, want := matches(pattern, name), like.MatchString(name); got != want {
			t.Fatalf("matches(%q, %q) = %t", pattern, name, got)
		}
	}
}
