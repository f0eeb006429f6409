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
	"github.com/cage-qat/cage/internal/vfs/vfstest"
)

// A dataset holds all that is needed to read it, also after it was moved.
func TestDatasetKeepsItsTokenizer(t *testing.T) {
	source := t.TempDir()
	definition, err := os.ReadFile("tokenizer/testdata/gpt2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	writeTree(t, source, map[string]string{
		"tokenizer.json":        string(definition),
		"tokenizer_config.json": `{"bos_token": {"content": "<|begin|>"}}`,
	})
	tok, err := tokenizer.Open(source)
	if err != nil {
		t.Fatal(err)
	}
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
	gpt2, err := tokenizer.Open("tokenizer/testdata/gpt2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	llama3, err := os.ReadFile("tokenizer/testdata/llama3.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if _, err := Prepare(context.Background(), PrepareOptions{Inputs: []string{dir}, Out: other, Files: vfstest.NoSync, Seed: 5, Tokenizer: gpt2}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		harm func(out string) error
		want string
	}{
		"no manifest": {func(out string) error { return os.Remove(filepath.Join(out, dataset.Texts.Manifest)) }, "it has no dataset.json"},
		"bad manifest": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte("{"), 0o644)
		}, dataset.Texts.Manifest},
		"no version": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte(`{"x":1}`), 0o644)
		}, "this is no manifest"},
		"older version": {func(out string) error {
			return os.WriteFile(filepath.Join(out, dataset.Texts.Manifest), []byte(`{"version":2}`), 0o644)
		}, "version 2, this program reads version 3: prepare the dataset again"},
		"no val": {func(out string) error { return os.Remove(filepath.Join(out, dataset.Texts.Val)) }, dataset.Texts.Val},
		"train of another": {func(out string) error {
			return os.Rename(filepath.Join(other, dataset.Texts.Train), filepath.Join(out, dataset.Texts.Train))
		}, "prepare the dataset again"},
		"no tokenizer":    {func(out string) error { return os.Remove(filepath.Join(out, "tokenizer.json")) }, "tokenizer.json"},
		"other tokenizer": {func(out string) error { return os.WriteFile(filepath.Join(out, "tokenizer.json"), llama3, 0o644) }, "want tokenizer gpt2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			if _, err := Prepare(context.Background(), PrepareOptions{Inputs: []string{dir}, Out: out, Files: vfstest.NoSync, Tokenizer: gpt2}); err != nil {
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
