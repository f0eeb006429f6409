package tokenizer

import (
	"strings"
	"testing"
)

// FuzzConfig: the tokenizer_config.json beside a definition, and a template inside of it,
// give a token of the vocabulary, none, or an error.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"bos_token":"a"}`), []byte(`null`))
	f.Add([]byte(`{"bos_token":{"content":"ab","lstrip":false}}`), []byte(`{"type":"ByteLevel"}`))
	f.Add([]byte(`{"bos_token":null}`), []byte(`{"type":"Sequence","processors":[{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}}],"special_tokens":{"s":{"ids":[2]}}}]}`))
	f.Add([]byte(``), []byte(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}}],"special_tokens":{"s":{"ids":[-7]}}}`))
	f.Fuzz(func(t *testing.T, config, post []byte) {
		definition := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"post_processor":` + string(post) + `}`
		if len(config) == 0 {
			config = nil
		}
		tok, err := newHuggingFace([]byte(definition), config)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an error says nothing")
			}
			return
		}
		if bos := tok.Info().BOS; bos != NoToken && (bos < 0 || int(bos) >= tok.Info().VocabSize) {
			t.Fatalf("the first token is %d in a vocabulary of %d", bos, tok.Info().VocabSize)
		}
	})
}
