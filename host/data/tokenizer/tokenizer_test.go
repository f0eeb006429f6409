package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestBytes(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, text := range []string{"", "plain", "Größe 模型 🙂", string(all), "half \xe6\xa8"} {
		ids, err := Bytes{}.Encode(text)
		if err != nil || len(ids) != len(text) {
			t.Fatalf("Encode(%q): %d ids, %v", text, len(ids), err)
		}
		back, err := Bytes{}.Decode(ids)
		if err != nil || back != text {
			t.Errorf("%q became %q, %v", text, back, err)
		}
	}
	for _, id := range []int32{-1, 256} {
		var rangeErr *RangeError
		if _, err := (Bytes{}).Decode([]int32{65, id}); !errors.As(err, &rangeErr) || rangeErr.ID != int64(id) {
			t.Errorf("Decode of %d: %v", id, err)
		}
	}
}

// FuzzBytes: every text comes back unchanged.
func FuzzBytes(f *testing.F) {
	f.Add("text\x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		ids, _ := Bytes{}.Encode(text)
		if back, err := (Bytes{}).Decode(ids); err != nil || back != text {
			t.Fatalf("%q became %q, %v", text, back, err)
		}
	})
}

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	definition, err := os.ReadFile("testdata/gpt2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, DefinitionFile), definition, 0o644); err != nil {
		t.Fatal(err)
	}
	for spec, name := range map[string]string{
		"bytes": "bytes", dir: "small", filepath.Join(dir, DefinitionFile): "small", "testdata/gpt2.tokenizer.json": "gpt2.tokenizer",
	} {
		tok, err := Open(spec)
		if err != nil || tok.Info().Name != name {
			t.Errorf("Open(%q): %v, %v; want name %q", spec, tok, err, name)
		}
	}
	for _, spec := range []string{"missing", "", "testdata", "testdata/corpus.txt"} {
		if _, err := Open(spec); err == nil {
			t.Errorf("Open(%q) succeeded", spec)
		}
	}
}

func TestBOSOfConfig(t *testing.T) {
	definition, err := os.ReadFile("testdata/gpt2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config string
		token  string // "" for none
		err    string
	}{
		"no config":  {"", "", ""},
		"nothing":    {`{}`, "", ""},
		"null":       {`{"bos_token":null}`, "", ""},
		"string":     {`{"bos_token":"<|begin|>"}`, "<|begin|>", ""},
		"object":     {`{"bos_token":{"content":"<|end|>","lstrip":false}}`, "<|end|>", ""},
		"unknown":    {`{"bos_token":"<none>"}`, "", `"<none>" is not in the vocabulary`},
		"wrong type": {`{"bos_token":3}`, "", "bos_token"},
		"no JSON":    {`{`, "", ConfigFile},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tok, err := newHuggingFace(definition, []byte(test.config))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if bos := tok.Info().BOS; tok.tokens[bos] != test.token || (bos == NoToken) != (test.token == "") {
				t.Errorf("BOS %d %q, want %q", bos, tok.tokens[bos], test.token)
			}
		})
	}
}

// edited returns a definition with sections replaced by others.
func edited(t testing.TB, name string, sections map[string]string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var def map[string]json.RawMessage
	if err := json.Unmarshal(text, &def); err != nil {
		t.Fatal(err)
	}
	for section, value := range sections {
		def[section] = json.RawMessage(value)
	}
	text, err = json.Marshal(def)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestUnsupported(t *testing.T) {
	tests := map[string]struct{ section, value, want string }{
		"WordPiece":       {"model", `{"type":"WordPiece","vocab":{"a":0}}`, `"WordPiece"`},
		"Unigram":         {"model", `{"type":"Unigram","vocab":[["a",0.5]]}`, `"Unigram"`},
		"dropout":         {"model", `{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}`, "dropout"},
		"prefix":          {"model", `{"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0},"merges":[]}`, "prefix"},
		"normalizer":      {"normalizer", `{"type":"BertNormalizer"}`, `"BertNormalizer"`},
		"in a sequence":   {"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`, `"Lowercase"`},
		"Replace regex":   {"normalizer", `{"type":"Replace","pattern":{"Regex":" +"},"content":" "}`, "regular expression"},
		"pre-tokenizer":   {"pre_tokenizer", `{"type":"BertPreTokenizer"}`, `"BertPreTokenizer"`},
		"behavior":        {"pre_tokenizer", `{"type":"Split","pattern":{"String":" "},"behavior":"Sideways"}`, `"Sideways"`},
		"after ByteLevel": {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`, "Digits after ByteLevel"},
		"prepend scheme":  {"pre_tokenizer", `{"type":"Metaspace","prepend_scheme":"sometimes"}`, `"sometimes"`},
		"decoder":         {"decoder", `{"type":"WordPiece"}`, `"WordPiece"`},
		"decoder regex":   {"decoder", `{"type":"Replace","pattern":{"Regex":"_"},"content":" "}`, "regular expression"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newHuggingFace(edited(t, "gpt2", map[string]string{test.section: test.value}), nil)
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want an UnsupportedError with %s", err, test.want)
			}
		})
	}
}

func TestBadDefinition(t *testing.T) {
	tests := map[string]struct{ section, value, want string }{
		"no vocabulary":      {"model", `{"type":"BPE","vocab":{},"merges":[]}`, "vocab"},
		"negative id":        {"model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, "id -1"},
		"id twice":           {"model", `{"type":"BPE","vocab":{"a":1,"b":1},"merges":[]}`, `"a" and "b" have the same id 1`},
		"merge of strangers": {"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`, `merges[0]: "a" + "b"`},
		"merge without gap":  {"model", `{"type":"BPE","vocab":{"a":0},"merges":["ab"]}`, "no space"},
		"merge of three":     {"model", `{"type":"BPE","vocab":{"a":0},"merges":[["a","b","c"]]}`, "3 parts"},
		"merge of numbers":   {"model", `{"type":"BPE","vocab":{"a":0},"merges":[7]}`, "merge 7"},
		"unknown token":      {"model", `{"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}`, `"?"`},
		"bad pattern":        {"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`, `pattern "("`},
		"no pattern":         {"pre_tokenizer", `{"type":"Split","behavior":"Isolated"}`, "without a pattern"},
		"taken id":           {"added_tokens", `[{"id":5,"content":"x"}]`, "belongs to"},
		"template":           {"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"?"}}]}`, `"?"`},
		"template id":        {"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"?"}}],"special_tokens":{"?":{"ids":[9999]}}}`, "9999"},
		"type":               {"pre_tokenizer", `7`, "pre_tokenizer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newHuggingFace(edited(t, "gpt2", map[string]string{test.section: test.value}), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %s", err, test.want)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	tok, _ := readGolden(t, "gpt2")
	if _, err := tok.Encode("half \xe6\xa8"); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("invalid UTF-8: %v", err)
	}
	var rangeErr *RangeError
	if _, err := tok.Decode([]int32{5, 9999}); !errors.As(err, &rangeErr) {
		t.Errorf("Decode of 9999: %v", err)
	}
	lossy, err := newHuggingFace(edited(t, "gpt2", map[string]string{
		"model": `{"type":"BPE","vocab":{"a":0},"merges":[]}`, "added_tokens": "[]", "pre_tokenizer": "null",
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lossy.Encode("ab"); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a character without a token: %v", err)
	}
}

// One tokenizer serves many goroutines.
func TestConcurrentUse(t *testing.T) {
	tok, want := readGolden(t, "llama3")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, c := range want.Cases {
				ids, err := tok.Encode(c.Text)
				if err != nil || len(ids) != len(c.IDs) {
					t.Errorf("%q: %d ids, %v", clip(c.Text), len(ids), err)
				}
			}
		})
	}
	group.Wait()
}

func TestReopen(t *testing.T) {
	tok, _ := readGolden(t, "llama3")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, DefinitionFile), tok.Definition(), 0o644); err != nil {
		t.Fatal(err)
	}
	info := tok.Info()
	again, err := Reopen(dir, info)
	if err != nil || again.Info() != info {
		t.Errorf("reopened %+v, %v; want %+v", again.Info(), err, info)
	}
	other := info
	other.SHA256 = strings.Repeat("0", 64)
	if _, err := Reopen(dir, other); err == nil || !strings.Contains(err.Error(), "hash") {
		t.Errorf("another hash: %v", err)
	}
	builtin, err := Reopen("", Bytes{}.Info())
	if err != nil || builtin != (Bytes{}) {
		t.Errorf("bytes reopened as %v, %v", builtin, err)
	}
}

// FuzzDefinition: no tokenizer.json makes loading or encoding panic.
func FuzzDefinition(f *testing.F) {
	for _, seed := range []string{
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`,
		`{"model":{"type":"BPE","vocab":{"a":0,"<0x62>":1},"merges":[],"byte_fallback":true,"unk_token":"a"},"pre_tokenizer":{"type":"Metaspace"}}`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[{"id":1,"content":"b","lstrip":true,"rstrip":true}],"decoder":{"type":"Strip","content":"a","start":1}}`,
	} {
		f.Add([]byte(seed), "aab ab")
	}
	f.Fuzz(func(t *testing.T, definition []byte, text string) {
		tok, err := newHuggingFace(definition, nil)
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

func BenchmarkEncode(b *testing.B) {
	corpus, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat(string(corpus), 20)
	for _, name := range []string{"gpt2", "llama3", "llama2"} {
		b.Run(name, func(b *testing.B) {
			tok, _ := readGolden(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Values computed by the original library.
func TestUnknownToken(t *testing.T) {
	for fuse, want := range map[string][]int32{"true": {0, 1, 0}, "false": {0, 0, 1, 0}} {
		tok, err := newHuggingFace([]byte(
			`{"model":{"type":"BPE","unk_token":"?","fuse_unk":`+fuse+`,"vocab":{"?":0,"a":1},"merges":[]}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := tok.Encode("xyaz"); err != nil || !slices.Equal(ids, want) {
			t.Errorf("fuse_unk %s: %v, %v; want %v", fuse, ids, err, want)
		}
	}
}
