package tokenizer

import (
	"strings"
	"testing"
)

// TestConfig: each key is read in all its published forms, and a mistake at one key leaves
// the others readable.
func TestConfig(t *testing.T) {
	keys := map[string]func(Config) (string, error){"bos_token": Config.BOS, "eos_token": Config.EOS, "pad_token": Config.Pad, "chat_template": Config.Template}
	for _, c := range []struct{ key, value, want, err string }{
		{"bos_token", `"<s>"`, "<s>", ""},
		{"eos_token", `{"content": "</s>", "lstrip": false}`, "</s>", ""},
		{"eos_token", `null`, "", ""},
		{"pad_token", `{"content": ""}`, "", ""},
		{"pad_token", `7`, "", "pad_token: want a string, or an object with the key content"},
		{"bos_token", `{"text": "<s>"}`, "", "bos_token: want a string, or an object with the key content"},
		{"chat_template", `"{{ 1 }}"`, "{{ 1 }}", ""},
		{"chat_template", `[{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]`, "d", ""},
		{"chat_template", `[{"name": "rag", "template": "r"}]`, "", "chat_template: none of its 1 templates has the name default"},
		{"chat_template", `{}`, "", "chat_template: want a string, or a list of objects with name and template"},
	} {
		config, err := ParseConfig([]byte(`{"` + c.key + `": ` + c.value + `}`))
		if err != nil {
			t.Fatal(err)
		}
		for key, read := range keys {
			got, err := read(config)
			switch {
			case key != c.key && (got != "" || err != nil):
				t.Errorf("%s of %s: %q, %v; want nothing", key, c.value, got, err)
			case key == c.key && (got != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err))):
				t.Errorf("%s = %s: %q, %v; want %q, %q", key, c.value, got, err, c.want, c.err)
			}
		}
	}
}

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
