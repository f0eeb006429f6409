package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func learned(t *testing.T, tokens int, texts ...string) *HuggingFace {
	t.Helper()
	l := NewLearner()
	for _, text := range texts {
		if err := l.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	definition, err := l.Definition(tokens)
	if err != nil {
		t.Fatal(err)
	}
	tok := parsed(t, definition)
	return tok
}

// TestLearn checks that the most frequent pairs are merged, within words only.
func TestLearn(t *testing.T) {
	// The words are "low", " low", " lower" and so on. The pairs lo and ow occur five times each; of
	// ties, the pair with the smaller ids comes first.
	tok := learned(t, 256+len(Specials)+4, "low low lower", "low lower")
	var merged []string
	for id := int32(256); id < 260; id++ {
		merged = append(merged, tok.tokens[id])
	}
	if want := []string{"lo", "low", "Ġlow", "er"}; !slices.Equal(merged, want) {
		t.Errorf("the tokens are %q, want %q", merged, want)
	}
	ids, err := tok.Encode("lower")
	if err != nil || len(ids) != 2 || tok.tokens[ids[0]] != "low" || tok.tokens[ids[1]] != "er" {
		t.Errorf("lower is %v, %v", ids, err)
	}
	info := tok.Info()
	if info.VocabSize != 265 || tok.tokens[info.BOS] != Specials[0] {
		t.Errorf("the tokenizer is %+v", info)
	}
}

// TestLearnedTokenizerIsExact checks that every text survives a round trip, and that the order of
// the texts does not matter.
func TestLearnedTokenizerIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("aaabbc  \n\tdé漢🙂1239'.()ABC")
	var texts []string
	for range 40 {
		var b strings.Builder
		for range 100 {
			b.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	for _, tokens := range []int{261, 300, 2000} {
		tok := learned(t, tokens, texts...)
		for _, text := range append(texts, "Nothing seen before: ßŧ\x00…",
			Specials[2]+"user"+Specials[3]) {
			ids, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := tok.Decode(ids); err != nil || back != text {
				t.Fatalf("with %d tokens %q came back as %q, %v", tokens, text, back, err)
			}
		}
		reversed := slices.Clone(texts)
		slices.Reverse(reversed)
		if !bytes.Equal(tok.definition, learned(t, tokens, reversed...).definition) {
			t.Errorf("with %d tokens the order of texts matters", tokens)
		}
	}
	if _, err := NewLearner().Definition(260); err == nil ||
		!strings.Contains(err.Error(), "at least 261") {
		t.Errorf("too few tokens: the error is %v", err)
	}
}

// TestLearnMore checks that a larger tokenizer begins with the merges of a smaller one, and gives
// shorter sequences.
func TestLearnMore(t *testing.T) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog; the dog sleeps on. ", 3)
	small, large := learned(t, 280, text), learned(t, 300, text)
	for id := int32(0); id < 275; id++ {
		if small.tokens[id] != large.tokens[id] {
			t.Errorf("token %d is %q, in the larger one %q", id, small.tokens[id], large.tokens[id])
		}
	}
	a, err := small.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := large.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) >= len(a) || len(a) >= len(text) {
		t.Errorf("%d tokens with 280, %d with 300, of %d bytes", len(a), len(b), len(text))
	}
}
