package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// joinByScore encodes a text without added tokens as SentencePiece does, in the slowest form: join
// the neighbors whose text has the highest score, leftmost first, until none is a token.
func joinByScore(t *HuggingFace, s *SentencePiece, text string) (ids []int32) {
	if text == "" {
		return nil
	}
	if s.Prefix {
		text = " " + text
	}
	parts := strings.Split(strings.ReplaceAll(text, " ", spaceMark), "")
	for {
		at, best := -1, float32(0)
		for i := 1; i < len(parts); i++ {
			if id, ok := t.model.vocab[parts[i-1]+parts[i]]; ok && (at < 0 || s.Scores[id] > best) {
				at, best = i, s.Scores[id]
			}
		}
		if at < 0 {
			break
		}
		parts[at-1] += parts[at]
		parts = slices.Delete(parts, at, at+1)
	}
	for _, part := range parts {
		if id, ok := t.model.vocab[part]; ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(part) {
			ids = append(ids, t.model.bytes[b])
		}
	}
	return ids
}

// TestSentencePiece checks that, for a tokenizer like Llama 2's, joining by score gives the same
// ids as merging by rank.
func TestSentencePiece(t *testing.T) {
	tok, golden := readGolden(t, "llama2")
	s, err := tok.SentencePiece()
	if err != nil || len(s.Differs) > 0 {
		t.Fatalf("%v, error %v", s, err)
	}
	if !s.Prefix || s.Unknown != 0 || len(s.Scores) != tok.Info().VocabSize {
		t.Errorf("prefix %v, unknown %d, %d scores", s.Prefix, s.Unknown, len(s.Scores))
	}
	for _, c := range golden.Cases {
		if len(c.Text) > 2000 {
			continue // the reference is slow
		}
		if got := joinByScore(tok, s, c.Text); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: %v, want %v", clip(c.Text), got, c.IDs)
		}
	}
}

// randomPieces returns a tokenizer.json with the letters a to d, "▁", bytes and fewer than 30
// random merges.
func randomPieces(r *rand.Rand) map[string]any {
	tokens := []string{"<unk>"}
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
	}
	first := len(tokens)
	tokens = append(tokens, "a", "b", "c", "d", spaceMark)
	merges := [][2]string{}
	for range 5 + r.IntN(25) {
		left, right := tokens[first+r.IntN(len(tokens)-first)], tokens[first+r.IntN(len(tokens)-first)]
		if len(left)+len(right) > 8 || slices.Contains(merges, [2]string{left, right}) {
			continue
		}
		merges = append(merges, [2]string{left, right})
		if !slices.Contains(tokens, left+right) {
			tokens = append(tokens, left+right)
		}
	}
	vocab := map[string]int{}
	for id, token := range tokens {
		vocab[token] = id
	}
	return map[string]any{
		"normalizer": map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "},
			"content": spaceMark},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": merges,
			"byte_fallback": true, "unk_token": "<unk>"},
	}
}

// TestSentencePieceRandom checks that, with random merges, ids are equal if Differs is empty, and
// differ for at least a third of the other tokenizers.
func TestSentencePieceRandom(t *testing.T) {
	testlevel.Long(t, "hundreds of random tokenizers")
	r := rand.New(rand.NewPCG(1, 2))
	equal, other, found := 0, 0, 0
	for range 400 {
		definition, err := json.Marshal(randomPieces(r))
		if err != nil {
			t.Fatal(err)
		}
		tok := parsed(t, definition)
		s, err := tok.SentencePiece()
		if err != nil {
			t.Fatal(err)
		}
		differs := false
		for range 100 {
			text := ""
			for range 1 + r.IntN(16) {
				text += []string{"a", "b", "c", "d", " ", "é"}[r.IntN(6)]
			}
			want, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			got := joinByScore(tok, s, text)
			if differs = differs || !slices.Equal(got, want); differs && len(s.Differs) == 0 {
				t.Fatalf("%s\n%q: %v, want %v", definition, text, got, want)
			}
		}
		if len(s.Differs) == 0 {
			equal++
			continue
		}
		other++
		if differs {
			found++
		}
	}
	if equal < 20 || found < other/3 {
		t.Errorf("%d are said to be equal; of %d others %d were found to differ", equal, other, found)
	}
}

// TestSentencePieceForms checks which definitions are supported, and which are errors.
func TestSentencePieceForms(t *testing.T) {
	text := testfile.Read(t, "testdata/llama2.tokenizer.json")
	metaspace := func(more string) map[string]string {
		return map[string]string{"normalizer": "null",
			"pre_tokenizer": `{"type": "Metaspace", "replacement": "▁"` + more + `}`}
	}
	for _, c := range []struct {
		name    string
		change  map[string]string // sections
		prefix  bool
		differs string
		err     string
	}{
		{"as it is", nil, true, "", ""},
		{"never", metaspace(`, "prepend_scheme": "never", "split": false`), false, "", ""},
		{"first", metaspace(`, "prepend_scheme": "first", "split": false`), true,
			"a text that begins with a space gets no second one before it; a text after an added token", ""},
		{"older", metaspace(`, "add_prefix_space": false, "split": false`), false, "", ""},
		// no token has "▁" except at its beginning
		{"split", metaspace(`, "prepend_scheme": "never"`), false, "", ""},
		{"added", map[string]string{"added_tokens": `[{"id": 0, "content": "<unk>", "lstrip": true}]`},
			true, `the added token "<unk>" is`, ""},
		{"lower case", map[string]string{"normalizer": `{"type": "NFC"}`}, false, "",
			`normalizer: type "NFC"`},
		{"two prefixes", map[string]string{"pre_tokenizer": `{"type": "Metaspace"}`}, false, "",
			"pre_tokenizer: this way of splitting"},
		{"nothing", map[string]string{"normalizer": "null"}, false, "",
			"pre_tokenizer: this way of splitting"},
	} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for key, section := range c.change {
			file[key] = json.RawMessage(section)
		}
		definition, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := ReadHuggingFace(definition, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s, err := tok.SentencePiece()
		if c.err != "" {
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || s.Prefix != c.prefix ||
			!strings.HasPrefix(strings.Join(s.Differs, "; "), c.differs) || c.differs == "" &&
			len(s.Differs) > 0 {
			t.Errorf("%s: %+v, error %v", c.name, s, err)
		}
	}
	for _, name := range []string{"gpt2", "llama3"} {
		tok, _ := readGolden(t, name)
		if _, err := tok.SentencePiece(); err == nil || !strings.Contains(err.Error(), "byte_fallback") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
