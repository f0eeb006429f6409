package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// edited returns a definition with some sections replaced.
func edited(t testing.TB, name string, sections map[string]string) []byte {
	t.Helper()
	var def map[string]json.RawMessage
	testfile.ReadJSON(t, filepath.Join("testdata", name+".tokenizer.json"), &def)
	for section, value := range sections {
		def[section] = json.RawMessage(value)
	}
	text, err := json.Marshal(def)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// parsed returns the tokenizer of a definition.
func parsed(t testing.TB, definition []byte) *HuggingFace {
	t.Helper()
	tok, err := ReadHuggingFace(definition, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// template returns a post_processor with these parts for a single text.
func template(single string) string {
	return `{"type":"TemplateProcessing","single":[` + single +
		`],"special_tokens":{"a":{"ids":[0]},"b":{"ids":[1]}}}`
}

func TestUnsupported(t *testing.T) {
	tests := map[string]struct{ section, value, want string }{
		"WordPiece": {"model", `{"type":"WordPiece","vocab":{"a":0}}`, `"WordPiece"`},
		"Unigram":   {"model", `{"type":"Unigram","vocab":[["a",0.5]]}`, `"Unigram"`},
		"dropout": {"model", `{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}`,
			"dropout"},
		"a key of the model": {"model", `{"type":"BPE","future":1,"vocab":{"a":0},"merges":[]}`,
			`the key "future"`},
		"a key of a step": {"pre_tokenizer", `{"type":"ByteLevel","future":true}`, "the key future"},
		"a section":       {"future", `{"a":1}`, `the key "future"`},
		"prefix": {"model",
			`{"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0},"merges":[]}`, "prefix"},
		"normalizer": {"normalizer", `{"type":"BertNormalizer"}`, `"BertNormalizer"`},
		"in a sequence": {"normalizer",
			`{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`, `"Lowercase"`},
		"Replace regex": {"normalizer", `{"type":"Replace","pattern":{"Regex":" +"},"content":" "}`,
			`"Replace"`},
		"another Replace": {"normalizer", `{"type":"Replace","pattern":{"String":" "},"content":"_"}`,
			`"Replace"`},
		"another Prepend": {"normalizer", `{"type":"Prepend","prepend":"_"}`, `"Prepend"`},
		"NFKC":            {"normalizer", `{"type":"NFKC"}`, `"NFKC"`},
		"no pattern": {"pre_tokenizer", `{"type":"Split","behavior":"Isolated"}`,
			"want a String or Regex"},
		"back-reference": {"pre_tokenizer",
			`{"type":"Split","pattern":{"Regex":"(a)\\1"},"behavior":"Isolated"}`,
			`the pattern "(a)\\1" is not supported; cage does not know "\\1" in it`},
		"script": {"pre_tokenizer",
			`{"type":"Split","pattern":{"Regex":"\\p{Punct}"},"behavior":"Isolated"}`,
			`does not know "\\p{Punct}" in it`},
		"another mark": {"pre_tokenizer", `{"type":"Metaspace","replacement":"_"}`, `replacement "_"`},
		"a decoder's":  {"decoder", `{"type":"Metaspace","replacement":"_"}`, `replacement "_"`},
		"single word": {"added_tokens", `[{"id":420,"content":"on","single_word":true}]`,
			"single_word"},
		"pre-tokenizer": {"pre_tokenizer", `{"type":"BertPreTokenizer"}`, `"BertPreTokenizer"`},
		"behavior": {"pre_tokenizer",
			`{"type":"Split","pattern":{"String":" "},"behavior":"Sideways"}`, `"Sideways"`},
		"after ByteLevel": {"pre_tokenizer",
			`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`,
			"Digits after ByteLevel"},
		"prepend scheme": {"pre_tokenizer", `{"type":"Metaspace","prepend_scheme":"sometimes"}`,
			`"sometimes"`},
		"decoder": {"decoder", `{"type":"WordPiece"}`, `"WordPiece"`},
		"post-processor": {"post_processor", `{"type":"RobertaProcessing","sep":["b",1],"cls":["a",0]}`,
			`"RobertaProcessing"`},
		"in its sequence": {"post_processor",
			`{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"BertProcessing","sep":["b",1],"cls":["a",0]}]}`, `"BertProcessing"`},
		"two before": {"post_processor",
			template(`{"SpecialToken":{"id":"a"}},{"SpecialToken":{"id":"b"}},{"Sequence":{"id":"A"}}`),
			"at most one special token"},
		"two behind": {"post_processor",
			template(`{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"a"}},{"SpecialToken":{"id":"b"}}`),
			"at most one special token"},
		"text twice": {"post_processor", template(`{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}`),
			"at most one special token"},
		"no text": {"post_processor", template(`{"SpecialToken":{"id":"a"}}`), "the text A"},
		"two templates": {"post_processor", `{"type":"Sequence","processors":[` +
			template(`{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}`) + "," +
			template(`{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"b"}}`) + `]}`,
			"several parts add tokens"},
		"decoder regex": {"decoder", `{"type":"Replace","pattern":{"Regex":"_"},"content":" "}`,
			"Replace of other characters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadHuggingFace(edited(t, "gpt2", map[string]string{test.section: test.value}), nil)
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want an UnsupportedError with %s", err, test.want)
			}
		})
	}
}

func TestBadDefinition(t *testing.T) {
	tests := map[string]struct{ section, value, want string }{
		"no vocabulary": {"model", `{"type":"BPE","vocab":{},"merges":[]}`, "vocab"},
		"negative id":   {"model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, "id -1"},
		"id twice": {"model", `{"type":"BPE","vocab":{"a":1,"b":1},"merges":[]}`,
			`"a" and "b" have the same id 1`},
		"merge of strangers": {"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`,
			`merges[0]: "a" + "b"`},
		"merge without gap": {"model", `{"type":"BPE","vocab":{"a":0},"merges":["ab"]}`, "no space"},
		"merge of one": {"model", `{"type":"BPE","vocab":{"a":0},"merges":["a "]}`,
			"no space between two parts"},
		"merge of three": {"model", `{"type":"BPE","vocab":{"a":0},"merges":[["a","b","c"]]}`,
			"3 parts"},
		"merge of numbers": {"model", `{"type":"BPE","vocab":{"a":0},"merges":[7]}`, "merge 7"},
		"unknown token": {"model", `{"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}`,
			`"?"`},
		"bad pattern": {"pre_tokenizer",
			`{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`, `pattern "("`},
		"taken id": {"added_tokens", `[{"id":5,"content":"not in the vocabulary"}]`,
			"has id 5, but the reference library assigns 420"},
		"a gap": {"added_tokens", `[{"id":420,"content":"<x>"},{"id":422,"content":"<y>"}]`,
			`added_tokens[1]: "<y>" has id 422, but the reference library assigns 421`},
		"template": {"post_processor",
			`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"?"}},{"Sequence":{"id":"A"}}]}`,
			`"?"`},
		"template part": {"post_processor",
			template(`{"Sequence":{"id":"B"}},{"Sequence":{"id":"A"}}`), "a part that is neither"},
		"template id": {"post_processor",
			`{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"?"}}],"special_tokens":{"?":{"ids":[9999]}}}`, "9999"},
		"type": {"pre_tokenizer", `7`, "pre_tokenizer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadHuggingFace(edited(t, "gpt2", map[string]string{test.section: test.value}), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %s", err, test.want)
			}
		})
	}
}

// FuzzDefinition checks that no tokenizer.json makes loading or encoding panic.
func FuzzDefinition(f *testing.F) {
	for _, seed := range []string{
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`,
		`{"model":{"type":"BPE","vocab":{"a":0,"<0x62>":1},"merges":[],"byte_fallback":true,"unk_token":"a"},"pre_tokenizer":{"type":"Metaspace"}}`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[{"id":1,"content":"b","lstrip":true,"rstrip":true}],"decoder":{"type":"Strip","content":"a","start":1}}`,
	} {
		f.Add([]byte(seed), "aab ab")
	}
	f.Fuzz(func(t *testing.T, definition []byte, text string) {
		tok, err := ReadHuggingFace(definition, nil)
		if err != nil || len(text) > 100 {
			return
		}
		ids, err := tok.Encode(text)
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Info().VocabSize {
				t.Fatalf("id %d outside a vocabulary of %d", id, tok.Info().VocabSize)
			}
		}
		if _, err := tok.Decode(ids); err != nil {
			t.Fatal(err)
		}
	})
}

// TestIDsOfAddedTokens checks that a file is rejected if tokenizers 0.23.3 of Python gives its
// added tokens other ids.
func TestIDsOfAddedTokens(t *testing.T) {
	for _, c := range []struct {
		h     int // id of the last of 8 tokens
		added string
		want  bool
	}{
		{7, `{"id": 8, "content": "<x>"}, {"id": 9, "content": "<y>"}`, true},
		{7, `{"id": 12, "content": "<x>"}`, false},
		{7, `{"id": 8, "content": "<x>"}, {"id": 10, "content": "<y>"}`, false},
		{7, `{"id": 9, "content": "<y>"}, {"id": 8, "content": "<x>"}`, false},
		{7, `{"id": 3, "content": "<x>"}`, false},
		{7, `{"id": -1, "content": "<x>"}`, false},
		{7, `{"id": 2147483647, "content": "<x>"}`, false},
		// "h" keeps its id of the vocabulary
		{7, `{"id": 9, "content": "h"}, {"id": 8, "content": "<x>"}`, true},
		{7, `{"id": 8, "content": "<x>"}, {"id": 8, "content": "<x>"}, {"id": 9, "content": "<y>"}`,
			true},
		{7, `{"id": 8, "content": "<x>"}, {"id": 9, "content": "<x>"}, {"id": 9, "content": "<y>"}`,
			false},
		{7, `{"id": 8, "content": ""}, {"id": 8, "content": "<x>"}`, true},
		{20, `{"id": 8, "content": "<x>"}`, true},
		{20, `{"id": 21, "content": "<x>"}`, false},
		{20, `{"id": 20, "content": "h"}, {"id": 8, "content": "<x>"}, {"id": 9, "content": "<y>"}`,
			true},
		{8, `{"id": 8, "content": "<x>"}`, false}, // two tokens with the same id
	} {
		definition := fmt.Appendf(nil, `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": %d}, "merges": []},
			"added_tokens": [%s]}`, c.h, c.added)
		if _, err := ReadHuggingFace(definition, nil); (err == nil) != c.want {
			t.Errorf("the last token is %d, added %s: %v", c.h, c.added, err)
		}
	}
}
