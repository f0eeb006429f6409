package data_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// TestKeepsTokenizer: what was published with a tokenizer lies in the dataset, as it is. What lay beside another tokenizer
// goes with that one; what lies beside the same one stays.
func TestKeepsTokenizer(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "set")
	// published is the folder of a tokenizer with these files beside its definition.
	published := func(name, definition string, files map[string]string) tokenizer.Tokenizer {
		t.Helper()
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join("tokenizer", "testdata", definition))
		if err != nil {
			t.Fatal(err)
		}
		files["tokenizer.json"] = string(text)
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		tok, err := tokenizer.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one;two;three"), 0o644); err != nil {
		t.Fatal(err)
	}
	prepare := func(tok tokenizer.Tokenizer, want map[string]string) {
		t.Helper()
		if _, err := data.Prepare(t.Context(), data.PrepareOptions{Inputs: []string{filepath.Join(dir, "a.txt")}, Separator: ";", Out: out, Tokenizer: tok, ValFraction: 0.4}); err != nil {
			t.Fatal(err)
		}
		for _, name := range tokenizer.CompanionFiles {
			content, err := os.ReadFile(filepath.Join(out, name))
			if string(content) != want[name] || os.IsNotExist(err) != (want[name] == "") {
				t.Errorf("%s is %q, want %q, error %v", name, content, want[name], err)
			}
		}
	}
	const config = `{"eos_token": "a",   "pad_token": null}`
	llama := published("llama", "llama3.tokenizer.json", map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "{{ x }}", "special_tokens_map.json": "{}"})
	prepare(llama, map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "{{ x }}", "special_tokens_map.json": "{}"})
	same := published("same", "llama3.tokenizer.json", map[string]string{"chat_template.jinja": "{{ y }}"})
	prepare(same, map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "{{ y }}", "special_tokens_map.json": "{}"})
	prepare(published("other", "gpt2.tokenizer.json", map[string]string{"special_tokens_map.json": "[]"}), map[string]string{"special_tokens_map.json": "[]"})
	prepare(tokenizer.Bytes{}, map[string]string{"special_tokens_map.json": "[]"})
}
