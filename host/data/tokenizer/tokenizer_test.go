package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
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
		if _, err := (Bytes{}).Decode([]int32{65, id}); !errors.As(err, &rangeErr) ||
			rangeErr.ID != int64(id) {
			t.Errorf("Decode of %d: %v", id, err)
		}
	}
}

// FuzzBytes checks that every text survives a round trip.
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
	definition := testfile.Read(t, "testdata/gpt2.tokenizer.json")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	testfile.Write(t, filepath.Join(dir, DefinitionFile), definition)
	for spec, name := range map[string]string{
		"bytes": "bytes", dir: "small", filepath.Join(dir, DefinitionFile): "small",
		"testdata/gpt2.tokenizer.json": "gpt2.tokenizer",
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
	definition := testfile.Read(t, "testdata/gpt2.tokenizer.json")
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
			tok, err := ReadHuggingFace(definition, []byte(test.config))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if bos := tok.Info().BOS; tok.tokens[bos] != test.token ||
				(bos == NoToken) != (test.token == "") {
				t.Errorf("BOS %d %q, want %q", bos, tok.tokens[bos], test.token)
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
	lossy := parsed(t, edited(t, "gpt2", map[string]string{
		"model": `{"type":"BPE","vocab":{"a":0},"merges":[]}`, "added_tokens": "[]",
		"pre_tokenizer": "null",
	}))
	if _, err := lossy.Encode("ab"); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a character without a token: %v", err)
	}
}

// TestConcurrentUse checks that goroutines can share a tokenizer.
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

func BenchmarkEncode(b *testing.B) {
	corpus := testfile.Read(b, "testdata/corpus.txt")
	text := strings.Repeat(string(corpus), 20)
	for _, name := range []string{"gpt2", "llama3", "llama2", "expression"} {
		b.Run(name, func(b *testing.B) {
			tok, err := ReadHuggingFace(edited(b, "llama3", nil), nil)
			if name != "expression" {
				tok, _ = readGolden(b, name)
			} else if find, failed := compile(PatternGPT4); failed == nil { // the same ids as llama3
				tok.pre.steps[0] = find.cut("Isolated", false)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestUnknownToken compares ids with those of the original library.
func TestUnknownToken(t *testing.T) {
	for fuse, want := range map[string][]int32{"true": {0, 1, 0}, "false": {0, 0, 1, 0}} {
		tok := parsed(t, []byte(
			`{"model":{"type":"BPE","unk_token":"?","fuse_unk":`+fuse+`,"vocab":{"?":0,"a":1},"merges":[]}}`))
		if ids, err := tok.Encode("xyaz"); err != nil || !slices.Equal(ids, want) {
			t.Errorf("fuse_unk %s: %v, %v; want %v", fuse, ids, err, want)
		}
	}
}

// TestConfig checks that each key is read in all its published forms, and that a mistake at one key
// does not affect the others.
func TestConfig(t *testing.T) {
	keys := map[string]func(Config) (string, error){"chat_template": Config.Template}
	for _, key := range []string{"bos_token", "eos_token", "pad_token"} {
		keys[key] = func(c Config) (string, error) { return c.Token(key) }
	}
	for _, c := range []struct{ key, value, want, err string }{
		{"bos_token", `"<s>"`, "<s>", ""},
		{"eos_token", `{"content": "</s>", "lstrip": false}`, "</s>", ""},
		{"eos_token", `null`, "", ""},
		{"pad_token", `{"content": ""}`, "", ""},
		{"pad_token", `7`, "", "pad_token: want a string, or an object with the key content"},
		{"bos_token", `{"text": "<s>"}`, "",
			"bos_token: want a string, or an object with the key content"},
		{"chat_template", `"{{ 1 }}"`, "{{ 1 }}", ""},
		{"chat_template", `[{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]`, "d",
			""},
		{"chat_template", `[{"name": "rag", "template": "r"}]`, "",
			"chat_template: none of its 1 templates is named default"},
		{"chat_template", `{}`, "",
			"chat_template: want a string, or a list of objects with name and template"},
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
			case key == c.key && (got != c.want || c.err == "" && err != nil || c.err != "" &&
				(err == nil || !strings.Contains(err.Error(), c.err))):
				t.Errorf("%s = %s: %q, %v; want %q, %q", key, c.value, got, err, c.want, c.err)
			}
		}
	}
}

// FuzzConfig checks that any tokenizer_config.json and post-processor give a BOS token of the
// vocabulary, none, or an error.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"bos_token":"a"}`), []byte(`null`))
	f.Add([]byte(`{"bos_token":{"content":"ab","lstrip":false}}`), []byte(`{"type":"ByteLevel"}`))
	f.Add([]byte(`{"bos_token":null}`),
		[]byte(`{"type":"Sequence","processors":[{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}}],"special_tokens":{"s":{"ids":[2]}}}]}`))
	f.Add([]byte(``), []byte(
		`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}}],"special_tokens":{"s":{"ids":[-7]}}}`))
	f.Fuzz(func(t *testing.T, config, post []byte) {
		definition := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"post_processor":` + string(post) + `}`
		if len(config) == 0 {
			config = nil
		}
		tok, err := ReadHuggingFace([]byte(definition), config)
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
