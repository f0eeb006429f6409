package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestCompare compares ids with those of the Python package tokenizers, which
// scripts/compare-tokenizers.py wrote to the directory CAGE_TOKENIZERS.
func TestCompare(t *testing.T) {
	dir := os.Getenv("CAGE_TOKENIZERS")
	if dir == "" {
		t.Skip("CAGE_TOKENIZERS names no directory")
	}
	var texts []string
	testfile.ReadJSON(t, filepath.Join(dir, "texts.json"), &texts)
	names, err := filepath.Glob(filepath.Join(dir, "*", tokenizer.DefinitionFile))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tokenizers in %s, %v", dir, err)
	}
	for _, name := range names {
		tok, err := tokenizer.LoadHuggingFace(name)
		if err != nil {
			t.Fatal(err)
		}
		var want [][]int32
		text, err := os.ReadFile(filepath.Join(filepath.Dir(name), "ids.json"))
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil || len(want) != len(texts) {
			t.Fatalf("%s: %d lists of ids for %d texts, %v", name, len(want), len(texts), err)
		}
		for i, text := range texts {
			if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want[i]) {
				t.Errorf("%s: %q:\n got %v %v\nwant %v", tok.Info().Name, text, got, err, want[i])
			}
		}
	}
}
