package export_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testgguf"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestBytes checks that the tokenizer.json of the built-in tokenizer gives the ids of the bytes.
func TestBytes(t *testing.T) {
	out, err := export.NewTokenizer(nil, tokenizer.Bytes{}.Info())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range out.Files {
		testfile.Write(t, filepath.Join(dir, name), content)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "plain text\n\twith spaces  ", "naïve 漢字 🦫",
		"\x01\x7f\u00ad\u0100 don't"} {
		want, err := tokenizer.Bytes{}.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Encode(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v, error %v", text, got, want, err)
		}
		back, err := tok.Decode(got)
		if err != nil || back != text {
			t.Errorf("%q comes back as %q, error %v", text, back, err)
		}
	}
	if tok.Info().BOS != 0 || tok.Info().VocabSize != 256 {
		t.Errorf("the tokenizer is %+v", tok.Info())
	}
}

// TestPre checks the names of pre-tokenizers that llama.cpp supports, and that others are refused.
func TestPre(t *testing.T) {
	const byteLevel = `{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}`
	const regex = `{"type": "ByteLevel", "add_prefix_space": false}`
	split := func(pattern string) string {
		return `{"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex": "` +
			strings.ReplaceAll(pattern, `\`, `\\`) + `"}}, ` + byteLevel + `]}`
	}
	const gpt4 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	for _, c := range []struct{ pre, model, want string }{
		{split(gpt4), `"ignore_merges": true`, "llama-bpe"},
		{split(gpt4), `"ignore_merges": false`, "dbrx"},
		{split(strings.Replace(gpt4, `{1,3}`, "", 1)), `"ignore_merges": false`, "qwen2"},
		{regex, `"merges": ["a b"]`, "gpt-2"},
		{`{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, ` +
			regex + `]}`, `"merges": [["a", "b"]]`, "smollm"},
		{byteLevel, `"merges": ["a b"]`, ""},
		{split(`\d+`), `"merges": []`, ""},
		{`null`, `"merges": []`, ""},
		{`{"type": "ByteLevel", "add_prefix_space": true}`, `"merges": ["a b"]`, ""},
		{regex, `"merges": [], "byte_fallback": true`, ""},
		{regex, `"type": "Unigram"`, ""},
	} {
		m := small(t, architecture.KindLlama, nil)
		m.Tokenizer.Files["tokenizer.json"] = []byte(`{"pre_tokenizer": ` + c.pre +
			`, "model": {"vocab": {"a": 0, "b": 7}, ` + c.model + `}}`)
		dir := filepath.Join(t.TempDir(), "out")
		_, err := export.Write(t.Context(), "gguf", vfs.At(dir), m, export.Options{})
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "--to hf") {
				t.Errorf("%s %s: %v, want a refusal", c.pre, c.model, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
		tokens, _ := f.Value("tokenizer.ggml.tokens").([]string)
		if got := f.Value("tokenizer.ggml.pre"); got != c.want || len(tokens) != 256 ||
			tokens[7] != "b" || tokens[1] != "[PAD1]" {
			t.Errorf("%s: it says %v, and the tokens are %q", c.want, got, tokens[:min(9, len(tokens))])
		}
	}
}

// TestMarks checks the special tokens and chat templates of a tokenizer_config.json.
func TestMarks(t *testing.T) {
	m := small(t, architecture.KindLlama, nil)
	files := m.Tokenizer.Files
	files["tokenizer_config.json"] = []byte(
		`{"eos_token": {"content": "!"}, "pad_token": "#", "chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]}`)
	info := tokenizer.Bytes{}.Info()
	for _, file := range []string{"", "template of a file"} {
		if file != "" {
			files["chat_template.jinja"] = []byte(file)
			files["additional_chat_templates/tool use.jinja"] = []byte("no")
		}
		var err error
		if m.Tokenizer, err = export.NewTokenizer(files, info); err != nil {
			t.Fatal(err)
		}
		m.Tokenizer.AddBOS = file == ""
		dir, _ := exported(t, "gguf", m, export.Options{})
		f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
		want := "yes"
		if file != "" {
			want = file
		}
		further := map[string]string{"": "rag", "template of a file": "tool_use"}[file]
		if names, _ := f.Value("tokenizer.chat_templates").([]string); !slices.Equal(names,
			[]string{further}) || f.Value("tokenizer.chat_template."+further) != "no" {
			t.Errorf("the further templates are %q: %v", names, f.Value("tokenizer.chat_template."+further))
		}
		if f.Value("tokenizer.chat_template") != want ||
			f.Value("tokenizer.ggml.eos_token_id") != uint32('!') ||
			f.Value("tokenizer.ggml.padding_token_id") != uint32('#') ||
			f.Value("tokenizer.ggml.add_bos_token") != (file == "") {
			t.Errorf("the entries are %v", f.Entries)
		}
	}
}

// TestEnds checks that a text ends at every token that one of the files or the tokenizer names.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		config, generation string
		eos                int32
		want               []int32
	}{
		{``, ``, -1, []int32{0}}, // the token that begins a document
		{``, ``, 7, []int32{7}},
		{`{"eos_token": "!"}`, `{"eos_token_id": [9, 33, 8]}`, 9, []int32{'!', 9, 8}},
		{`{"eos_token": "!", "pad_token": 3}`, ``, -1, []int32{'!'}},
		{`{"eos_token": null}`, `{"eos_token_id": 12}`, -1, []int32{12}},
		{``, `{"eos_token_id": null}`, 5, []int32{5}},
		{`{"eos_token": "unknown"}`, `{"eos_token_id": "x"}`, -1, []int32{0}},
	} {
		m := small(t, architecture.KindLlama, nil)
		files := m.Tokenizer.Files
		files["tokenizer_config.json"], files["generation_config.json"] = []byte(c.config),
			[]byte(c.generation)
		info := tokenizer.Bytes{}.Info()
		info.EOS = c.eos
		tok, err := export.NewTokenizer(files, info)
		if err != nil || !slices.Equal(tok.EOS, c.want) {
			t.Errorf("%+v: texts end at %v, error %v", c, tok.EOS, err)
		}
		if _, copied := tok.Files["generation_config.json"]; copied {
			t.Error("generation_config.json would be copied")
		}
	}
}

// TestTurn checks that exports have the token that ends a turn, which differs from the one that
// ends a document. GGUF has a key for it, and for the token that ends a message of Llama 3.1;
// tokens without a key are in a note. A token of the vocabulary keeps its id, and added tokens
// without text are ignored, as by the reference library.
func TestTurn(t *testing.T) {
	m := small(t, architecture.KindLlama, nil)
	m.Tokenizer.Files["tokenizer.json"] = []byte(`{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 7, "<|eom_id|>": 10}, "merges": []},
		"added_tokens": [{"id": 9, "content": "<|end_of_text|>", "special": true}, {"id": 3, "content": "<|eom_id|>", "special": true}, {"id": 0, "content": ""}, {"id": 11, "content": "<|eot_id|>", "special": true}]}`)
	m.Tokenizer.Files["tokenizer_config.json"] = []byte(`{"eos_token": "<|end_of_text|>"}`)
	tok, err := export.NewTokenizer(m.Tokenizer.Files, tokenizer.Info{BOS: tokenizer.NoToken, EOS: 9},
		10, 11, 7, tokenizer.NoToken)
	if err != nil {
		t.Fatal(err)
	}
	tok.Turn = 11
	m.Tokenizer = tok
	dir := t.TempDir()
	if _, err := export.Write(t.Context(), "hf", vfs.At(filepath.Join(dir, "hf")), m,
		export.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"generation_config.json", "config.json"} {
		text := testfile.Read(t, filepath.Join(dir, "hf", name))
		var file struct {
			EOS []int32 `json:"eos_token_id"`
		}
		if err := json.Unmarshal(text, &file); err != nil ||
			!slices.Equal(file.EOS, []int32{9, 10, 11, 7}) {
			t.Errorf("by %s a text ends at %v, error %v", name, file.EOS, err)
		}
	}
	report, err := export.Write(t.Context(), "gguf", vfs.At(filepath.Join(dir, "gguf")), m,
		export.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := testgguf.Open(t, filepath.Join(dir, "gguf", "model.gguf"))
	for key, want := range map[string]uint32{"eos": 9, "eom": 10, "eot": 11} {
		if got := f.Value("tokenizer.ggml." + key + "_token_id"); got != want {
			t.Errorf("%s is %v, want %d", key, got, want)
		}
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "token 7 also ends texts") {
		t.Errorf("the notes are %q", report.Notes)
	}
}

// TestLargeIDs checks that a tokenizer with ids that the model does not have is refused.
func TestLargeIDs(t *testing.T) {
	m := small(t, architecture.KindLlama, nil)
	m.Tokenizer.Files["tokenizer.json"] = []byte(`{"model": {"vocab": {"x": 256}}}`)
	for _, format := range export.Formats() {
		if _, err := write(t, format, m, export.Options{}); err == nil ||
			!strings.Contains(err.Error(), `"x" has the id 256`) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// FuzzTokenizer checks that no tokenizer files make an export panic.
func FuzzTokenizer(f *testing.F) {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text := testfile.Read(f, filepath.Join(goldens, "float", name))
		f.Add(text, text)
	}
	f.Add([]byte(`{"model": {"vocab": {"a": -1}, "merges": [1]}}`),
		[]byte(`{"eos_token": 3, "chat_template": []}`))
	m := small(f, architecture.KindLlama, nil)
	f.Fuzz(func(t *testing.T, definition, config []byte) {
		files := map[string][]byte{"tokenizer.json": definition, "tokenizer_config.json": config}
		tok, err := export.NewTokenizer(files, tokenizer.Bytes{}.Info())
		if err != nil {
			return
		}
		changed := *m
		changed.Tokenizer = tok
		_ = export.PlanOnly("gguf", &changed)
	})
}

// llama2 returns a small model with a tokenizer like Llama 2's, and with more ids than that.
func llama2(t *testing.T, change func(definition string) string) *export.Model {
	t.Helper()
	m := small(t, architecture.KindLlama, nil)
	m.Settings.Vocab = 700
	network, err := model.New(m.Settings, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Params = network.Params()
	definition := testfile.Read(t, "../../data/tokenizer/testdata/llama2.tokenizer.json")
	files := map[string][]byte{
		tokenizer.DefinitionFile: []byte(change(string(definition))),
		tokenizer.ConfigFile:     []byte(`{"eos_token": "</s>"}`),
	}
	m.Latent = func(name string) ([]float32, error) {
		i := slices.IndexFunc(m.Params, func(p architecture.Param) bool { return p.Name == name })
		return m.Params[i].Init(1), nil
	}
	if m.Tokenizer, err = export.NewTokenizer(files,
		tokenizer.Info{Name: "llama2", BOS: 1, EOS: tokenizer.NoToken}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSentencePieceEntries checks that a tokenizer like Llama 2's is stored as llama.cpp stores it.
func TestSentencePieceEntries(t *testing.T) {
	m := llama2(t, func(definition string) string { return definition })
	dir := filepath.Join(t.TempDir(), "out")
	report, err := export.Write(t.Context(), "gguf", vfs.At(dir), m, export.Options{})
	if err != nil || len(report.Notes) > 0 {
		t.Fatalf("%+v, error %v", report, err)
	}
	f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
	for key, want := range map[string]any{
		"model": "llama", "pre": "default", "add_space_prefix": true, "add_bos_token": true,
		"bos_token_id": uint32(1), "eos_token_id": uint32(2), "unknown_token_id": uint32(0),
		"merges": nil,
	} {
		if got := f.Value("tokenizer.ggml." + key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	tokens, _ := f.Value("tokenizer.ggml.tokens").([]string)
	types, _ := f.Value("tokenizer.ggml.token_type").([]int32)
	scores, _ := f.Value("tokenizer.ggml.scores").([]float32)
	if len(tokens) != 700 || len(types) != 700 || len(scores) != 700 {
		t.Fatalf("%d tokens, %d types, %d scores, want 700 of each", len(tokens), len(types), len(scores))
	}
	for _, c := range []struct {
		token string
		typ   int32
		score float32
	}{
		{"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, {"<0x00>", 6, -344}, {"<0xFF>", 6, -344},
		{"▁", 1, -344},
		{"▁t", 1, 0}, {"he", 1, -1}, {"▁the", 1, -6}, {"[PAD699]", 5, 0},
	} {
		id := slices.Index(tokens, c.token)
		if id < 0 || types[id] != c.typ || scores[id] != c.score {
			t.Errorf("%q has the id %d, type %d and score %v, want %d and %v", c.token, id,
				types[max(0, id)], scores[max(0, id)], c.typ, c.score)
		}
	}
}

// TestSentencePieceRefused checks that if llama.cpp would give other ids, the export is refused or,
// if allowed, has a note.
func TestSentencePieceRefused(t *testing.T) {
	m := llama2(t, func(definition string) string {
		start, end := strings.Index(definition, `"normalizer"`),
			strings.Index(definition, `"post_processor"`)
		return definition[:start] +
			`"normalizer": null, "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always", "split": false},` + definition[end:]
	})
	const why = "llama.cpp gives other ids for some texts: a text that begins with a space gets no " +
		"second one before it"
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := export.Write(t.Context(), "gguf", vfs.At(dir), m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), why+"; use --inexact") {
		t.Errorf("%v, want a refusal", err)
	}
	report, err := export.Write(t.Context(), "gguf", vfs.At(dir), m, export.Options{Inexact: true})
	if err != nil || !slices.Equal(report.Notes, []string{why}) ||
		!slices.Contains(report.Summary(), why) {
		t.Errorf("%+v, error %v", report, err)
	}
	card, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(card), "| note | "+why+" |") {
		t.Errorf("error %v, the model card is\n%s", err, card)
	}
}
