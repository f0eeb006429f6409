package tokenizer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// TestAddsBOS: a begin token that is only named is put before no text.
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
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
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
