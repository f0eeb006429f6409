package tokenizer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"
)

// characters are those of random texts: of every class and several lengths, and all that patterns
// name.
var characters = []rune("abzABZstmdrevlSTLſ'’ " +
	"\t\n\r\u00a0\u2028\u3000019٣½Ⅷéßǅ模🙂!,.-_/<|>\u0301\u200d\ufffd\x00\x7f\u0085\U00010400\U0001d7d8▁")

func randomText(rng *rand.Rand, length int) string {
	text := make([]rune, rng.IntN(length))
	for i := range text {
		text[i] = characters[rng.IntN(len(characters))]
		if i > 0 && rng.IntN(3) == 0 {
			text[i] = text[i-1]
		}
	}
	return string(text)
}

// expressions returns the finders of the patterns for which there are scanners.
var expressions = sync.OnceValue(func() map[string]finder {
	compiled := map[string]finder{}
	for expr := range wordPatterns {
		find, err := compile(expr)
		if err != nil {
			panic(err)
		}
		compiled[expr] = find
	}
	return compiled
})

// words returns the parts into which a step cuts a text.
func words(t *testing.T, step cut, text string) (list []string) {
	t.Helper()
	p := &preTokenizer{steps: []cut{step}}
	if err := p.eachWord(text, true, func(word string) error {
		list = append(list, word)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// sameAsExpression compares a scanner with its regular expression.
func sameAsExpression(t *testing.T, expr string, text string) {
	t.Helper()
	want := words(t, expressions()[expr].cut("Isolated", false), text)
	got := words(t, (&scanner{classes(), wordPatterns[expr]}).cut, text)
	if !slices.Equal(got, want) {
		t.Fatalf("%q by %q:\n got %q\nwant %q", text, expr, got, want)
	}
}

func TestWordPatterns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for expr := range wordPatterns {
		for range 1500 {
			sameAsExpression(t, expr, randomText(rng, 40))
		}
	}
}

// FuzzWords checks that scanners find the same words as regular expressions.
func FuzzWords(f *testing.F) {
	f.Add("I'LL'ſx don't  3.14\r\n\n ½a\u3000 ")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || len(text) > 200 {
			return
		}
		for expr := range wordPatterns {
			sameAsExpression(t, expr, text)
		}
	})
}

// TestWordMarks checks that cutting words at "▁" changes no ids, and is off if a token has "▁"
// after another character.
func TestWordMarks(t *testing.T) {
	tok, golden := readGolden(t, "llama2")
	if !tok.model.cutsAtMarks {
		t.Fatal("words are not cut at marks")
	}
	whole, _ := readGolden(t, "llama2")
	whole.model.cutsAtMarks = false
	rng := rand.New(rand.NewPCG(9, 10))
	texts := []string{"", " ", "   ", "a ", " a", "▁▁ ▁"}
	for range 1000 {
		texts = append(texts, randomText(rng, 60))
	}
	for _, c := range golden.Cases {
		texts = append(texts, c.Text)
	}
	for _, text := range texts {
		want, err := whole.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for merge, want := range map[string]bool{`["a","b"]`: true, `["▁","▁"]`: true, `["▁","a"]`: true,
		`["a","▁"]`: false, `["▁a","▁"]`: false} {
		text := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"▁":2,"ab":3,"▁▁":4,"▁a":5,"a▁":6,"▁a▁":7},"merges":[["▁","a"],` + merge + `]}}`
		tok, err := ReadHuggingFace([]byte(text), nil)
		if err != nil || tok.model.cutsAtMarks != want {
			t.Errorf("%s: %v", merge, err)
		}
	}
}
