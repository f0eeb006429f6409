package train

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
)

// TestFollowing: a text and what follows it are the text of all their tokens, wherever it is cut, though the tokenizer of
// Llama 2 writes no space in front of a text.
func TestFollowing(t *testing.T) {
	llama, err := tokenizer.Open("../data/tokenizer/testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []tokenizer.Tokenizer{llama, tokenizer.Bytes{}} {
		ids, err := tok.Encode("the quick brown fox  runs; in the run")
		if err != nil {
			t.Fatal(err)
		}
		decode := func(ids []int32) string {
			text, err := tok.Decode(ids)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		for k := 1; k < len(ids); k++ {
			more, err := following(tok, ids[k-1:k], ids[k:])
			if got := decode(ids[:k]) + more; err != nil || got != decode(ids) {
				t.Errorf("%s: cut at %d it is %q, %v", tok.Info().Name, k, got, err)
			}
		}
		if alone, err := following(tok, nil, ids); err != nil || alone != decode(ids) {
			t.Errorf("%s: behind nothing it is %q, %v", tok.Info().Name, alone, err)
		}
	}
	// The second byte of a character behind the first: the text of both does not begin with that of the first.
	if text, err := following(tokenizer.Bytes{}, []int32{0xc3}, []int32{0xb6, 'x'}); err != nil || text[len(text)-1] != 'x' {
		t.Errorf("in the middle of a character: %q, %v", text, err)
	}
}

// TestBeginning: a begin token that the tokenizer puts before no text is used where the model has learned from documents
// with it, and where there is no text at all.
func TestBeginning(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tokenizer.json": `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"s":2},"merges":[]}}`, "tokenizer_config.json": `{"bos_token": "s"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	named, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	learned, talks := &config.Config{}, &config.Config{}
	learned.Data.Kind, talks.Data.Kind = config.KindText, config.KindChat
	published := learned.WithoutTraining("elsewhere")
	for name, c := range map[string]struct {
		cfg  *config.Config
		text string
		want []int32
	}{
		"learned": {learned, "ab", []int32{2, 0, 1}}, "from conversations": {talks, "ab", []int32{0, 1}},
		"published": {published, "ab", []int32{0, 1}}, "nothing": {published, "", []int32{2}},
	} {
		if got, err := beginning(c.cfg, named, c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %v", name, got, c.want, err)
		}
	}
}
