package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestDatasetKeepsItsTokenizer checks that a dataset can be decoded after it was moved.
func TestDatasetKeepsItsTokenizer(t *testing.T) {
	source := t.TempDir()
	definition := testfile.Read(t, "tokenizer/testdata/gpt2.tokenizer.json")
	testfile.Tree(t, source, map[string]string{
		"tokenizer.json":        string(definition),
		"tokenizer_config.json": `{"bos_token": {"content": "<|begin|>"}}`,
	})
	tok := openTokenizer(t, source)
	dir, _ := corpus(t, 10)
	out := filepath.Join(t.TempDir(), "set")
	m, d := prepare(t, PrepareOptions{Inputs: []string{dir}, Tokenizer: tok, Out: out})
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(out, moved); err != nil {
		t.Fatal(err)
	}
	kept, err := tokenizer.Reopen(moved, m.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if m.Tokenizer != tok.Info() || kept.Info() != tok.Info() || tok.Info().BOS < 0 {
		t.Errorf("made with %+v, opened with %+v", tok.Info(), kept.Info())
	}
	ids := make([]int32, d.Val.Len())
	if err := d.Val.ReadTokens(ids, 0); err != nil {
		t.Fatal(err)
	}
	text, err := kept.Decode(ids)
	if err != nil || !strings.HasPrefix(text, "<|begin|>document ") {
		t.Errorf("validation text %q, %v", text, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	dir, _ := corpus(t, 10)
	gpt2 := openTokenizer(t, "tokenizer/testdata/gpt2.tokenizer.json")
	llama3 := testfile.Read(t, "tokenizer/testdata/llama3.tokenizer.json")
	other := t.TempDir()
	if _, err := Prepare(context.Background(),
		PrepareOptions{Inputs: []string{dir}, Out: other, Files: vfstest.NoSync, Seed: 5,
			Tokenizer: gpt2}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		harm func(out string) error
		want string
	}{
		"no manifest": {func(out string) error {
			return os.Remove(filepath.Join(out, dataset.Texts.Manifest))
		}, "it has no dataset.json"},
		"bad manifest": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte("{"), 0o644)
		}, dataset.Texts.Manifest},
		"no version": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte(`{"x":1}`), 0o644)
		}, "this is not a manifest"},
		"older version": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte(`{"version":2}`), 0o644)
		}, "version 2, this program reads version 3: prepare the dataset again"},
		"no val": {func(out string) error { return os.Remove(filepath.Join(out, dataset.Texts.Val)) },
			dataset.Texts.Val},
		"train of another": {func(out string) error {
			return os.Rename(filepath.Join(other, dataset.Texts.Train),
				filepath.Join(out, dataset.Texts.Train))
		}, "prepare the dataset again"},
		"no tokenizer": {
			func(out string) error {
				return os.Remove(filepath.Join(out, "tokenizer.json"))
			}, "tokenizer.json"},
		"other tokenizer": {
			func(out string) error {
				return os.WriteFile(filepath.Join(out, "tokenizer.json"), llama3, 0o644)
			}, "want tokenizer gpt2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			if _, err := Prepare(context.Background(),
				PrepareOptions{Inputs: []string{dir}, Out: out, Files: vfstest.NoSync,
					Tokenizer: gpt2}); err != nil {
				t.Fatal(err)
			}
			if err := test.harm(out); err != nil {
				t.Fatal(err)
			}
			list, err := dataset.Verify(t.Context(), out)
			for _, v := range list {
				err = errors.Join(err, v.Err)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestKeepsTokenizer checks that the files published with a tokenizer are copied unchanged, and
// replace those of an earlier dataset. A file that no tokenizer brought stays.
func TestKeepsTokenizer(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "set")
	// published opens a tokenizer in a folder with these files.
	published := func(name, definition string, files map[string]string) tokenizer.Tokenizer {
		t.Helper()
		text := testfile.Read(t, filepath.Join("tokenizer", "testdata", definition))
		files["tokenizer.json"] = string(text)
		folder := filepath.Join(dir, name)
		testfile.Tree(t, folder, files)
		return openTokenizer(t, folder)
	}
	testfile.Tree(t, dir, map[string]string{"a.txt": "one;two;three"})
	prepare := func(tok tokenizer.Tokenizer, want map[string]string) {
		t.Helper()
		if _, err := Prepare(t.Context(), PrepareOptions{Inputs: []string{filepath.Join(dir, "a.txt")},
			Separator: ";", Out: out, Tokenizer: tok, ValFraction: 0.4}); err != nil {
			t.Fatal(err)
		}
		if h, ok := tok.(*tokenizer.HuggingFace); ok {
			want["tokenizer.json"] = string(h.Definition())
		}
		for _, name := range tokenizer.Files {
			content, err := os.ReadFile(filepath.Join(out, name))
			if string(content) != want[name] || os.IsNotExist(err) != (want[name] == "") {
				t.Errorf("%s is %q, want %q, error %v", name, content, want[name], err)
			}
		}
	}
	prepare(tokenizer.Bytes{}, map[string]string{})
	testfile.Tree(t, dir, map[string]string{"own/generation_config.json": "{}"})
	out = filepath.Join(dir, "own")
	for range 2 {
		prepare(tokenizer.Bytes{}, map[string]string{"generation_config.json": "{}"})
	}
	out = filepath.Join(dir, "set")
	const config = `{"eos_token": "a",   "pad_token": null}`
	llama := published("llama", "llama3.tokenizer.json",
		map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "{{ x }}",
			"special_tokens_map.json": "{}"})
	prepare(llama, map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "{{ x }}",
		"special_tokens_map.json": "{}"})
	same := published("same", "llama3.tokenizer.json",
		map[string]string{"chat_template.jinja": "{{ y }}"})
	prepare(same, map[string]string{"chat_template.jinja": "{{ y }}"})
	prepare(published("other", "gpt2.tokenizer.json",
		map[string]string{"special_tokens_map.json": "[]"}),
		map[string]string{"special_tokens_map.json": "[]"})
	prepare(tokenizer.Bytes{}, map[string]string{})
}

// TestVerify checks that Verify names only the damaged file, for each file of a dataset.
func TestVerify(t *testing.T) {
	text, out := t.TempDir(), t.TempDir()
	testfile.Tree(t, text, map[string]string{"a.txt": "some text of a", "b.txt": "some text of b",
		"c.txt": "some text of c"})
	tok := openTokenizer(t, "tokenizer/testdata/llama3.tokenizer.json")
	if _, err := Prepare(t.Context(), PrepareOptions{Inputs: []string{text}, Out: out, Tokenizer: tok,
		ValFraction: 0.4}); err != nil {
		t.Fatal(err)
	}
	files := []string{dataset.Texts.Manifest, dataset.Texts.Train, dataset.Texts.Val,
		tokenizer.DefinitionFile}
	if got := damaged(t, out); len(got) > 0 {
		t.Errorf("of an intact dataset, %q are damaged", got)
	}
	for _, name := range files {
		path := filepath.Join(out, name)
		content := testfile.Read(t, path)
		for _, at := range []int{0, len(content) / 2, len(content) - 2} {
			changed := append([]byte(nil), content...)
			changed[at] ^= 0x20
			if name == dataset.Texts.Manifest && at > 0 {
				changed = content[:at] // truncated, because not every byte has a meaning
			}
			testfile.Write(t, path, changed)
			if got := damaged(t, out); len(got) != 1 || got[0] != name {
				t.Errorf("%s, byte %d: %q are damaged", name, at, got)
			}
		}
		testfile.Write(t, path, content)
	}
	if err := os.Remove(filepath.Join(out, dataset.Texts.Train)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(damaged(t, out), " "); got != dataset.Texts.Train {
		t.Errorf("without %s, %q are damaged", dataset.Texts.Train, got)
	}
}

// TestVerifyTotals checks that a file with other totals than in the manifest counts as damaged.
func TestVerifyTotals(t *testing.T) {
	dir, _ := corpus(t, 50)
	out := t.TempDir()
	before, _ := prepare(t, PrepareOptions{Inputs: []string{dir}, Out: out})
	for name, change := range map[string]func(p *dataset.Part){
		"hash":      func(p *dataset.Part) { p.SHA256 = before.Val.SHA256 },
		"tokens":    func(p *dataset.Part) { p.Tokens++ },
		"documents": func(p *dataset.Part) { p.Documents++ },
	} {
		m := *before
		change(&m.Train)
		if err := atomicfile.WriteJSON(vfs.At(filepath.Join(out, dataset.Texts.Manifest)),
			m); err != nil {
			t.Fatal(err)
		}
		if got := damaged(t, out); len(got) != 1 || got[0] != dataset.Texts.Train {
			t.Errorf("%s: %q are damaged", name, got)
		}
	}
}

func damaged(t testing.TB, dir string) []string {
	t.Helper()
	list, err := dataset.Verify(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range list {
		if v.Err != nil {
			names = append(names, filepath.Base(v.Path))
		}
	}
	return names
}
