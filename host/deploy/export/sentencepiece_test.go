package export_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
)

// llama2 is a small model with a tokenizer as that of Llama 2. It has more ids than the tokenizer.
func llama2(t *testing.T, change func(definition string) string) *export.Model {
	t.Helper()
	m := small(t, architecture.KindLlama, nil)
	m.Settings.Vocab = 700
	network, err := model.New(m.Settings, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Params = network.Params()
	definition, err := os.ReadFile("../../data/tokenizer/testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		tokenizer.DefinitionFile: []byte(change(string(definition))),
		tokenizer.ConfigFile:     []byte(`{"eos_token": "</s>"}`),
	}
	m.Latent = func(name string) ([]float32, error) {
		i := slices.IndexFunc(m.Params, func(p architecture.Param) bool { return p.Name == name })
		return m.Params[i].Init(1), nil
	}
	if m.Tokenizer, err = export.NewTokenizer(files, tokenizer.Info{Name: "llama2", BOS: 1, EOS: tokenizer.NoToken}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSentencePieceEntries: a tokenizer as that of Llama 2 is stored as llama.cpp stores that of Llama 2.
func TestSentencePieceEntries(t *testing.T) {
	m := llama2(t, func(definition string) string { return definition })
	dir := filepath.Join(t.TempDir(), "out")
	report, err := export.Write(t.Context(), "gguf", at(dir), m, export.Options{})
	if err != nil || len(report.Notes) > 0 {
		t.Fatalf("%+v, error %v", report, err)
	}
	f := openGGUF(t, filepath.Join(dir, "model.gguf"))
	for key, want := range map[string]any{
		"model": "llama", "pre": "default", "add_space_prefix": true, "add_bos_token": true,
		"bos_token_id": uint32(1), "eos_token_id": uint32(2), "unknown_token_id": uint32(0), "merges": nil,
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
		{"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, {"<0x00>", 6, -344}, {"<0xFF>", 6, -344}, {"▁", 1, -344},
		{"▁t", 1, 0}, {"he", 1, -1}, {"▁the", 1, -6}, {"[PAD699]", 5, 0},
	} {
		id := slices.Index(tokens, c.token)
		if id < 0 || types[id] != c.typ || scores[id] != c.score {
			t.Errorf("%q has the id %d, type %d and score %v, want %d and %v", c.token, id, types[max(0, id)], scores[max(0, id)], c.typ, c.score)
		}
	}
}

// TestSentencePieceRefused: where llama.cpp would find other ids the export says so, and is made only
// if that is allowed.
func TestSentencePieceRefused(t *testing.T) {
	m := llama2(t, func(definition string) string {
		start, end := strings.Index(definition, `"normalizer"`), strings.Index(definition, `"post_processor"`)
		return definition[:start] + `"normalizer": null, "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always", "split": false},` + definition[end:]
	})
	const why = "llama.cpp finds other ids in some texts: a text that begins with a space gets no second one before it"
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := export.Write(t.Context(), "gguf", at(dir), m, export.Options{}); err == nil || !strings.Contains(err.Error(), why+"; --inexact") {
		t.Errorf("%v, want a refusal", err)
	}
	report, err := export.Write(t.Context(), "gguf", at(dir), m, export.Options{Inexact: true})
	if err != nil || !slices.Equal(report.Notes, []string{why}) || !slices.Contains(report.Summary(), why) {
		t.Errorf("%+v, error %v", report, err)
	}
	card, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(card), "| note | "+why+" |") {
		t.Errorf("error %v, the model card is\n%s", err, card)
	}
}
