package data

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestVerify damages each file of a dataset in turn, at one byte: Verify names that
// file, and goes on to the others.
func TestVerify(t *testing.T) {
	text, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
		if err := os.WriteFile(filepath.Join(text, name), []byte("some text of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenizer.Open("tokenizer/testdata/llama3.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(t.Context(), PrepareOptions{Inputs: []string{text}, Out: out, Tokenizer: tok, ValFraction: 0.4}); err != nil {
		t.Fatal(err)
	}
	files := []string{dataset.Texts.Manifest, dataset.Texts.Train, dataset.Texts.Val, tokenizer.DefinitionFile}
	if got := damaged(t, out); len(got) > 0 {
		t.Errorf("of an intact dataset, %q are damaged", got)
	}
	for _, name := range files {
		path := filepath.Join(out, name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(content) / 2, len(content) - 2} {
			changed := append([]byte(nil), content...)
			changed[at] ^= 0x20
			if name == dataset.Texts.Manifest && at > 0 {
				changed = content[:at] // not every letter of it has a meaning
			}
			if err := os.WriteFile(path, changed, 0o644); err != nil {
				t.Fatal(err)
			}
			if got := damaged(t, out); len(got) != 1 || got[0] != name {
				t.Errorf("%s, byte %d: %q are damaged", name, at, got)
			}
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(out, dataset.Texts.Train)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(damaged(t, out), " "); got != dataset.Texts.Train {
		t.Errorf("without %s, %q are damaged", dataset.Texts.Train, got)
	}
}

// TestVerifyTotals: a manifest that lost one of its shards, or whose totals are not those of
// its shards, is damaged.
func TestVerifyTotals(t *testing.T) {
	dir, _ := corpus(t, 50)
	out := t.TempDir()
	prepare(t, PrepareOptions{Inputs: []string{dir}, ShardTokens: 300, Out: out})
	text, err := os.ReadFile(filepath.Join(out, dataset.Texts.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *dataset.Part){
		"a shard less": func(p *dataset.Part) { p.Shards = p.Shards[1:] },
		"hash":         func(p *dataset.Part) { p.SHA256 = p.Shards[0].SHA256 },
		"tokens":       func(p *dataset.Part) { p.Tokens++ },
		"documents":    func(p *dataset.Part) { p.Documents++ },
	} {
		var m Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		change(&m.Train)
		if err := atomicfile.WriteJSON(vfs.At(filepath.Join(out, dataset.Texts.Manifest)), m); err != nil {
			t.Fatal(err)
		}
		if got := damaged(t, out); len(got) != 1 || got[0] != dataset.Texts.Manifest {
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
