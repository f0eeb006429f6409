package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
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
	files := []string{ManifestFile, TrainFile, ValFile, tokenizer.DefinitionFile}
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
			if name == ManifestFile && at > 0 {
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
	if err := os.Remove(filepath.Join(out, TrainFile)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(damaged(t, out), " "); got != TrainFile {
		t.Errorf("without %s, %q are damaged", TrainFile, got)
	}
}

func damaged(t *testing.T, dir string) []string {
	t.Helper()
	list, err := Verify(t.Context(), dir)
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
