package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// withoutMarks is the tokenizer of the golden file without the marks of ChatML.
func withoutMarks(t *testing.T) *tokenizer.HuggingFace {
	t.Helper()
	text, err := os.ReadFile("testdata/llama32.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	var added []map[string]any
	if err = json.Unmarshal(text, &file); err == nil {
		err = json.Unmarshal(file["added_tokens"], &added)
	}
	if err != nil {
		t.Fatal(err)
	}
	var kept []map[string]any
	for _, token := range added {
		if !strings.HasPrefix(token["content"].(string), "<|im_") {
			kept = append(kept, token)
		}
	}
	if file["added_tokens"], err = json.Marshal(kept); err != nil || len(kept) != len(added)-2 {
		t.Fatal(err, len(kept))
	}
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.ParseHuggingFace(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestMissingMarks: marks of a template that are no tokens are an error that says what to do, unless they are added, or are to be text,
// or always were.
func TestMissingMarks(t *testing.T) {
	tok := withoutMarks(t)
	builtIn := func(name string) *Template {
		tmpl, err := OpenTemplate(name, "testdata", false)
		if err != nil {
			t.Fatal(err)
		}
		return tmpl
	}
	chatml := builtIn("chatml")
	options := options(t, conversations(8), t.TempDir())
	options.Tokenizer, options.Template = tok, chatml
	_, err := Prepare(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "template chatml writes <|im_start|> and <|im_end|>, of which the tokenizer") || !strings.Contains(err.Error(), "--add-tokens") {
		t.Errorf("error %v, want one about the marks", err)
	}
	model := *chatml
	model.ofItsModel = true
	for name, c := range map[string]struct {
		template *Template
		tok      tokenizer.Tokenizer
		marks    Marks
	}{
		"plain": {chatml, tok, PlainMarks}, "of the model": {&model, tok, RefuseMarks}, "tulu": {builtIn("tulu"), tok, RefuseMarks},
		"marks that are tokens": {builtIn("llama3"), tok, RefuseMarks}, "bytes": {chatml, tokenizer.Bytes{}, RefuseMarks}, "nothing to add": {builtIn("llama3"), tok, AddMarks},
	} {
		if got, added, err := c.template.withMarks(c.tok, c.marks); err != nil || got != c.tok || added != nil {
			t.Errorf("%s: %v, added %v, error %v", name, got, added, err)
		}
	}
	if _, _, err := chatml.withMarks(tokenizer.Bytes{}, AddMarks); err == nil || !strings.Contains(err.Error(), "cannot be added to the tokenizer bytes") {
		t.Errorf("marks for bytes: error %v", err)
	}
}

// TestAddedMarks: the files of the data set agree about added tokens, and a turn ends with one of them.
func TestAddedMarks(t *testing.T) {
	tok := withoutMarks(t)
	folder := t.TempDir()
	listed := `{"eos_token": "<|eot_id|>", "added_tokens_decoder": {"324": {"content": "<|eot_id|>", "special": true}}}`
	if err := os.WriteFile(filepath.Join(folder, tokenizer.ConfigFile), []byte(listed), 0o600); err != nil {
		t.Fatal(err)
	}
	tmpl, err := OpenTemplate("chatml", folder, false)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, conversations(8), t.TempDir())
	o.Tokenizer, o.Template, o.Marks = tok, tmpl, AddMarks
	m, err := Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := tok.Info().VocabSize
	if diff := cmp.Diff([]AddedToken{{n, "<|im_start|>"}, {n + 1, "<|im_end|>"}}, m.AddedTokens); diff != "" || m.Tokenizer.VocabSize != n+2 {
		t.Errorf("a vocabulary of %d, added (-want +got):\n%s", m.Tokenizer.VocabSize, diff)
	}
	again, err := tokenizer.Reopen(o.Out, m.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := again.Encode("<|im_end|>"); err != nil || len(ids) != 1 || int(ids[0]) != n+1 {
		t.Errorf("ids %v, %v", ids, err)
	}
	text, err := os.ReadFile(filepath.Join(o.Out, tokenizer.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Added map[string]struct {
			Content string
			Special bool
		} `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Added) != 3 {
		t.Errorf("%d tokens in %s, %v", len(config.Added), text, err)
	}
	for _, token := range m.AddedTokens {
		if got := config.Added[fmt.Sprint(token.ID)]; got.Content != token.Content || !got.Special {
			t.Errorf("token %d is %+v in %s, want %s", token.ID, got, tokenizer.ConfigFile, token.Content)
		}
	}
}
