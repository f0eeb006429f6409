package tokenizer_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestExtends checks that other ids of the base, or other encodings of texts, are a difference. The
// formatting of the file and tokens with new ids are not.
func TestExtends(t *testing.T) {
	base := testfile.Read(t, "testdata/llama3.tokenizer.json")
	tok, err := tokenizer.ReadHuggingFace(base, nil)
	if err != nil {
		t.Fatal(err)
	}
	grown, err := tok.WithTokens([]string{"<|a|>", "<|b|>"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.Extends(grown.Definition(), base); err != nil {
		t.Error("added tokens:", err)
	}
	if err := tokenizer.Extends(base, grown.Definition()); err == nil ||
		!strings.Contains(err.Error(), `the added token "<|a|>"`) {
		t.Error("tokens that are missing:", err)
	}
	type object = map[string]any
	changed := func(change func(file, model object, added []any)) []byte {
		file := object{}
		if err := json.Unmarshal(base, &file); err != nil {
			t.Fatal(err)
		}
		change(file, file["model"].(object), file["added_tokens"].([]any))
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	swap := func(vocab object, a, b string) { vocab[a], vocab[b] = vocab[b], vocab[a] }
	for _, c := range []struct {
		name, want string
		change     func(file, model object, added []any)
	}{
		{"written otherwise", "", func(object, object, []any) {}},
		{"another post-processor, decoder and truncation", "", func(file, _ object, _ []any) {
			file["post_processor"], file["decoder"], file["truncation"] = nil, nil, object{"max_length": 3}
		}},
		{"a special token that is none", "",
			func(_, _ object, added []any) { added[0].(object)["special"] = false }},
		{"two tokens swapped", "the sections model differ",
			func(_, model object, _ []any) { swap(model["vocab"].(object), "!", "a") }},
		{"one token more", "the sections model differ",
			func(_, model object, _ []any) { model["vocab"].(object)["neu"] = 4000000 }},
		{"merges in another order", "the sections model differ", func(_, model object, _ []any) {
			merges := model["merges"].([]any)
			merges[0], merges[1] = merges[1], merges[0]
		}},
		{"merges that are ignored", "the sections model differ",
			func(_, model object, _ []any) { model["ignore_merges"] = model["ignore_merges"] != true }},
		{"a normalizer", "the sections normalizer differ",
			func(file, _ object, _ []any) { file["normalizer"] = object{"type": "NFC"} }},
		{"other words", "the sections pre_tokenizer differ",
			func(file, _ object, _ []any) { file["pre_tokenizer"] = object{"type": "ByteLevel"} }},
		{"an added token with another id", "the added token",
			func(_, _ object, added []any) { added[0].(object)["id"] = 4000000 }},
		{"an added token that takes spaces", "the added token",
			func(_, _ object, added []any) { added[0].(object)["lstrip"] = true }},
		{"an added token of another name", "the added token",
			func(_, _ object, added []any) { added[0].(object)["content"] = "<|other|>" }},
		{"an id taken", "belongs to", func(file, _ object, added []any) {
			taken := maps.Clone(added[0].(object))
			taken["content"] = "<|other|>"
			file["added_tokens"] = append(added, taken)
		}},
	} {
		err := tokenizer.Extends(changed(c.change), base)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	written, err := tokenizer.BytesDefinition()
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.Extends(nil, written); err != nil {
		t.Error("bytes, as other programs have them:", err)
	}
	if tokenizer.Extends(nil, base) == nil || tokenizer.Extends(base, nil) == nil ||
		tokenizer.Extends(base, []byte(`{"model": {"type": "Unigram"}}`)) == nil {
		t.Error("other tokenizers are the same")
	}
}

func TestDistinct(t *testing.T) {
	a, b := tokenizer.Info{Name: "tok", SHA256: "0123456789"},
		tokenizer.Info{Name: "tok", SHA256: "9876543210"}
	if x, y := tokenizer.Distinct(a, b); x != "tok (01234567)" || y != "tok (98765432)" {
		t.Error(x, y)
	}
	b.Name = "other"
	if x, y := tokenizer.Distinct(a, b); x != "tok" || y != "other" {
		t.Error(x, y)
	}
}
