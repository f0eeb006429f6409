package tokenizer_test

import (
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestAddsBOS checks that a BOS token that is only named is not added to texts.
func TestAddsBOS(t *testing.T) {
	const begins = `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[2]}}}`
	for name, c := range map[string]struct {
		post, config string
		bos          int32
		adds         bool
	}{
		"a post-processor": {begins, `{}`, 2, true},
		"named only":       {"null", `{"bos_token": "b"}`, 1, false},
		"both":             {begins, `{"bos_token": "ab"}`, 2, true},
		"neither":          {"null", `{}`, tokenizer.NoToken, false},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"tokenizer.json":        `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"post_processor":` + c.post + `}`,
			"tokenizer_config.json": c.config,
		} {
			testfile.Write(t, filepath.Join(dir, file), text)
		}
		tok, err := tokenizer.Open(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := tokenizer.AddsBOS(tok); got != c.adds || tok.Info().BOS != c.bos {
			t.Errorf("%s: the begin token is %d, and added: %t", name, tok.Info().BOS, got)
		}
	}
	if !tokenizer.AddsBOS(tokenizer.Bytes{}) {
		t.Error("bytes begin without their begin token")
	}
}

// TestWithTokens checks that added tokens get the next ids, that other ids stay, and that the
// definition gives the same tokenizer.
func TestWithTokens(t *testing.T) {
	for _, name := range []string{"llama3", "llama2", "gpt2"} {
		before, err := tokenizer.LoadHuggingFace(filepath.Join("testdata", name+".tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := before.WithTokens([]string{"<|im_start|>", "<|im_end|>"})
		if err != nil {
			t.Fatal(err)
		}
		n := int32(before.Info().VocabSize)
		want := before.Info()
		want.VocabSize, want.SHA256 = want.VocabSize+2, tok.Info().SHA256
		if tok.Info() != want || tok.Info().SHA256 == before.Info().SHA256 ||
			tokenizer.AddsBOS(tok) != tokenizer.AddsBOS(before) {
			t.Errorf("%s: %+v, want %+v", name, tok.Info(), want)
		}
		again, err := tokenizer.Restore(tok.Definition(), tok.Info())
		if err != nil {
			t.Fatal(err)
		}
		for _, tok := range []tokenizer.Tokenizer{tok, again} {
			got, err := tok.Encode("<|im_start|>the cat<|im_end|>")
			text, encodeErr := before.Encode("the cat")
			if want := slices.Concat([]int32{n}, text, []int32{n + 1}); err != nil || encodeErr != nil ||
				!slices.Equal(got, want) {
				t.Errorf("%s: ids %v, %v, want %v", name, got, err, want)
			}
			if !tokenizer.IsSpecial(tok, n) || !tokenizer.IsSpecial(tok, n+1) {
				t.Errorf("%s: the new tokens are not special", name)
			}
		}
	}
}

// TestWithTokenOfVocabulary checks that a token of the vocabulary that no merge makes keeps its id.
func TestWithTokenOfVocabulary(t *testing.T) {
	before, err := tokenizer.ReadHuggingFace(
		[]byte(`{"model":{"type":"BPE","vocab":{"<":0,"x":1,">":2,"<x>":3},"merges":[]}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := before.WithTokens([]string{"<x>"})
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("x<x>"); err != nil || !slices.Equal(ids, []int32{1, 3}) ||
		tok.Info().VocabSize != 4 {
		t.Errorf("ids %v, %v, of %d", ids, err, tok.Info().VocabSize)
	}
}

// TestWithTokensInGaps checks that new tokens get the ids that tokenizers 0.23.3 gives them when it
// reads the definition, even where the vocabulary leaves ids unused.
func TestWithTokensInGaps(t *testing.T) {
	before, err := tokenizer.ReadHuggingFace([]byte(`{"model":{"type":"BPE","merges":[],"vocab":
		{"a":0,"b":1,"<s>":9}},"added_tokens":[{"id":9,"content":"<s>"},{"id":3,"content":"<x>"}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := before.WithTokens([]string{"<y>", "<z>"})
	if err != nil {
		t.Fatal(err)
	}
	want := []int32{0, 3, 4, 5, 9}
	if ids, err := tok.Encode("a<x><y><z><s>"); err != nil || !slices.Equal(ids, want) ||
		tok.Info().VocabSize != 10 {
		t.Errorf("ids %v of %d, %v, want %v", ids, tok.Info().VocabSize, err, want)
	}
}

// TestMain fails when a goroutine outlives the tests, except the clock of regexp2, which ends by
// itself some time after the last match.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}
