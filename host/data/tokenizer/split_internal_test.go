package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSplits: patterns cut where the original library does, empty matches included. The words are those of tokenizers
// 0.23.3, pre_tokenizers.Split(Regex(pattern), behavior, invert).pre_tokenize_str(text).
func TestSplits(t *testing.T) {
	text, err := os.ReadFile("testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Pattern, Text, Behavior string
		Invert                  bool
		Words                   []string
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 60 {
		t.Fatalf("%d cases, %v", len(list), err)
	}
	for _, c := range list {
		var p preTokenizer
		if err := p.addSplit(c.Pattern, c.Behavior, c.Invert); err != nil {
			t.Fatal(err)
		}
		pieces, err := p.cutters[0].cut(nil, piece{c.Text, true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, piece := range pieces {
			got = append(got, piece.text)
		}
		if !slices.Equal(got, c.Words) {
			t.Errorf("%s, %s, invert %v: %q is cut into %q, want %q", c.Pattern, c.Behavior, c.Invert, c.Text, got, c.Words)
		}
	}
}

// TestMatchTimeout: an expression that takes forever is an error that names it, and not the whole text.
func TestMatchTimeout(t *testing.T) {
	before := matchTimeout
	matchTimeout = 100 * time.Millisecond
	defer func() { matchTimeout = before }()
	var p preTokenizer
	if err := p.addSplit(`(a+)+$`, "Isolated", false); err != nil {
		t.Fatal(err)
	}
	_, err := p.cutters[0].cut(nil, piece{strings.Repeat("a", 5000) + "b", true})
	if err == nil || !strings.Contains(err.Error(), `pattern "(a+)+$": no match was found, nor that there is none, within 100ms in a text of 5001 bytes`) || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
}

// TestOtherDialect: expressions that mean something else in the original library are refused; those of published models are not.
func TestOtherDialect(t *testing.T) {
	for _, expr := range []string{`[[:punct:]]`, `[^[:space:]]`, `[\p{L}&&[^\p{Han}]]+`, `a{,2}`, `[a-z-[aeiou]]`, `(?m).`, `(?im:x)`, `(?i)ß`} {
		var unsupported *UnsupportedError
		if err := (&preTokenizer{}).addSplit(expr, "Isolated", false); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", expr, err)
		}
	}
	for _, expr := range []string{`\[[\[\]&]+`, `a{2,}`, `(?i:'s|'t)|\s+(?!\S)`, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", `\{,`} {
		if err := (&preTokenizer{}).addSplit(expr, "Isolated", false); err != nil {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
