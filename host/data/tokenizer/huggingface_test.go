package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// golden holds values that testdata/generate.py recorded from the original library.
type golden struct {
	BOS   int32 `json:"bos"`
	Cases []struct {
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Decoded string  `json:"decoded"`
	} `json:"cases"`
}

func readGolden(t testing.TB, name string) (*HuggingFace, golden) {
	t.Helper()
	tok, err := LoadHuggingFace(filepath.Join("testdata", name+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	testfile.ReadJSON(t, filepath.Join("testdata", name+".golden.json"), &g)
	return tok, g
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"gpt2", "gpt2_prefix", "llama3", "llama2", "metaspace"} {
		t.Run(name, func(t *testing.T) {
			tok, want := readGolden(t, name)
			if len(want.Cases) < 20 {
				t.Fatalf("only %d cases", len(want.Cases))
			}
			if got := tok.Info().BOS; got != want.BOS {
				t.Errorf("BOS = %d, want %d", got, want.BOS)
			}
			for _, c := range want.Cases {
				ids, err := tok.Encode(c.Text)
				if err != nil {
					t.Errorf("Encode(%q): %v", clip(c.Text), err)
					continue
				}
				if diff := cmp.Diff(c.IDs, ids); diff != "" {
					t.Errorf("Encode(%q) (-want +got):\n%s", clip(c.Text), diff)
				}
				text, err := tok.Decode(c.IDs)
				if err != nil || text != c.Decoded {
					t.Errorf("Decode of %q = %q, %v; want %q", clip(c.Text), clip(text), err, clip(c.Decoded))
				}
			}
		})
	}
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// TestSpacesThatAreGone checks that splitting at spaces that the normalizer has replaced, as in
// Gemma's files, has no effect.
func TestSpacesThatAreGone(t *testing.T) {
	content, err := os.ReadFile("testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	with := func(normalizer, preTokenizer string) (*HuggingFace, error) {
		var sections map[string]json.RawMessage
		if err := json.Unmarshal(content, &sections); err != nil {
			t.Fatal(err)
		}
		sections["normalizer"], sections["pre_tokenizer"] = json.RawMessage(normalizer),
			json.RawMessage(preTokenizer)
		changed, err := json.Marshal(sections)
		if err != nil {
			t.Fatal(err)
		}
		return ReadHuggingFace(changed, nil)
	}
	const replace = `{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}`
	const split = `{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}`
	whole, err := with(replace, "null")
	if err != nil {
		t.Fatal(err)
	}
	gemma, err := with(replace, split)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", " ", "the quick  brown\n fox ", "▁ x", "é日本"} {
		want, err := whole.Encode(text)
		if got, gotErr := gemma.Encode(text); err != nil || gotErr != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v, %v", text, got, gotErr, want, err)
		}
	}
}

// TestSpacedWords checks that ByteLevel puts a space before every word of a Split. The ids are
// those of tokenizers 0.23.3.
func TestSpacedWords(t *testing.T) {
	text := testfile.Read(t, "testdata/llama3.tokenizer.json")
	spaced := bytes.Replace(text, []byte(`"add_prefix_space":false`),
		[]byte(`"add_prefix_space":true`), 1)
	tok, err := ReadHuggingFace(spaced, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"foo.\nbar":  {375, 78, 78, 220, 288, 274, 328},
		" foo":       {375, 78, 78},
		"a1b22 333x": {264, 220, 16, 274, 220, 17, 17, 220, 220, 18, 18, 18, 220, 87},
	} {
		if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
