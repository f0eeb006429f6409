package tokenizer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
)

// letters is a model with a token for each of a few characters, and no added tokens.
const letters = `{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"aa":3,"\u2581":4,"<0x61>":5},"merges":["a a"]}`

// small is a tokenizer.json with that model and other sections.
func small(sections string) []byte { return []byte(`{"model":` + letters + sections + `}`) }

func replace(from, to string) string {
	return fmt.Sprintf(`{"type":"Replace","pattern":{"String":%q},"content":%q}`, from, to)
}

func sequence(key string, steps ...string) string {
	return fmt.Sprintf(`{"type":"Sequence",%q:[%s]}`, key, strings.Join(steps, ","))
}

// doubling are steps that double a text n times.
func doubling(n int) []string {
	steps := make([]string, n)
	for i := range steps {
		steps[i] = replace("a", "aa")
	}
	return steps
}

// TestGrowth: a few bytes of a tokenizer.json that ask for more memory than any machine has are an error that names the
// section, before the memory is taken.
func TestGrowth(t *testing.T) {
	text := strings.Repeat("a b", 1000)
	marks := make([]string, 200)
	for i := range marks {
		marks[i] = fmt.Sprintf(`{"type":"Split","pattern":{"String":"a"},"behavior":"Isolated"},{"type":"Metaspace","replacement":"%c"}`, '一'+i)
	}
	for name, test := range map[string]struct{ sections, want string }{
		"Replace":       {`,"normalizer":` + replace("a", strings.Repeat("b", 100_000)), "normalizer"},
		"Replace twice": {`,"normalizer":` + sequence("normalizers", doubling(60)...), "normalizer"},
		"Prepend":       {`,"normalizer":` + fmt.Sprintf(`{"type":"Prepend","prepend":%q}`, strings.Repeat("b", 100_000)), "normalizer"},
		"Replace, NFKC": {`,"normalizer":` + sequence("normalizers", replace("a", "\ufdfa"), replace("b", "\ufdfa"), `{"type":"NFKC"}`), "normalizer"},
		"Metaspace":     {`,"pre_tokenizer":` + sequence("pretokenizers", marks...), "pre_tokenizer"},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := ParseHuggingFace(small(test.sections))
			if err != nil {
				t.Fatal(err)
			}
			var ids []int32
			used := allocated(func() { ids, err = tok.Encode(text) })
			if grown, ok := errors.AsType[*growthError](err); !ok || grown.section != test.want {
				t.Fatalf("%d ids, error %v, want one about the %s", len(ids), err, test.want)
			}
			if most := 1000 * len(text); used > most {
				t.Errorf("%d bytes were used to find that out, want at most %d", used, most)
			}
		})
	}
	tok, err := ParseHuggingFace(small(`,"decoder":` + sequence("decoders", doubling(60)...)))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := tok.Decode([]int32{1, 2, 3}); err == nil {
		t.Errorf("a decoder makes %d bytes of four", len(text))
	}
}

// TestUnicodeGrows: what Unicode's normal forms make of a text is never too long, whatever characters it has.
func TestUnicodeGrows(t *testing.T) {
	effort.Long(t, "every character of Unicode")
	for form := range forms {
		tok, err := ParseHuggingFace(small(`,"normalizer":` + sequence("normalizers", `{"type":"`+form+`"}`, replace(" ", "▁"))))
		if err != nil {
			t.Fatal(err)
		}
		for r := rune(1); r <= 0x10ffff; r += 1 {
			if r == 0xd800 {
				r = 0xe000
			}
			if _, err := tok.normalize(string(r), false, 13*len(string(r))); err != nil {
				t.Fatalf("%s of %U: %v", form, r, err)
			}
		}
	}
}

// TestBounds: sections within each other without end, and marks of several characters, are errors.
func TestBounds(t *testing.T) {
	deep := func(key, inner string) string {
		return strings.Repeat(`{"type":"Sequence","`+key+`":[`, 4000) + inner + strings.Repeat("]}", 4000)
	}
	for name, test := range map[string]struct{ sections, want string }{
		"normalizer":        {`,"normalizer":` + deep("normalizers", `{"type":"NFC"}`), "normalizer: values within values more than 32 deep"},
		"pre-tokenizer":     {`,"pre_tokenizer":` + deep("pretokenizers", `{"type":"ByteLevel"}`), "pre_tokenizer: values within values"},
		"decoder":           {`,"decoder":` + deep("decoders", `{"type":"Fuse"}`), "decoder: values within values"},
		"post-processor":    {`,"post_processor":` + deep("processors", `{"type":"ByteLevel"}`), "post_processor: values within values"},
		"long mark":         {`,"pre_tokenizer":{"type":"Metaspace","replacement":"__"}`, "want one character"},
		"long decoder mark": {`,"decoder":{"type":"Metaspace","replacement":"__"}`, "want one character"},
		"long added token":  {`,"added_tokens":[{"id":9,"content":"aaaa","normalized":true}],"normalizer":` + replace("a", strings.Repeat("b", 1000)), "added_tokens[0]: normalizer"},
	} {
		var err error
		used := allocated(func() { _, err = ParseHuggingFace(small(test.sections)) })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %.200v, want %s", name, err, test.want)
		}
		if used > 16<<20 {
			t.Errorf("%s: %d bytes were used to find that out", name, used)
		}
	}
}

// TestLargeFile: a file without end is an error.
func TestLargeFile(t *testing.T) {
	effort.Long(t, "it reads 128 MiB")
	path := filepath.Join(t.TempDir(), DefinitionFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("no file of this size can be made:", err)
	}
	if _, err := LoadHuggingFace(path); err == nil || !strings.Contains(err.Error(), path+" is too large") {
		t.Errorf("error %v, want one about the size of %s", err, path)
	}
}

// allocated is how many bytes a function allocates in all.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestMemory: a tokenizer.json that asks for as much as it may takes a memory that is in proportion to a long text. What is
// measured is all memory that is ever taken, of which at most a quarter is in use at a time.
func TestMemory(t *testing.T) {
	effort.Long(t, "long texts")
	n := 1 << 16
	for name, test := range map[string]struct{ sections, text string }{
		"one word":             {``, strings.Repeat("a", n)},
		"4 times as long":      {`,"normalizer":` + replace("b", strings.Repeat("b", 4)), strings.Repeat("b", n)},
		"U+FDFA":               {`,"normalizer":{"type":"NFKD"}`, strings.Repeat("\ufdfa\u4e00\u4e00", n/9)},
		"to U+FDFA":            {`,"normalizer":` + sequence("normalizers", replace("b", "\ufdfa"), `{"type":"NFKC"}`), strings.Repeat("ab          ", n/12)},
		"marks":                {`,"normalizer":` + sequence("normalizers", replace("b", strings.Repeat("\u0301", 2)), `{"type":"NFC"}`), strings.Repeat("b", n)},
		"a word per character": {`,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"|a"},"behavior":"Isolated"}`, strings.Repeat("a", n)},
		"and longer": {`,"normalizer":` + replace("b", strings.Repeat("ab", 2)) + `,"pre_tokenizer":` + sequence("pretokenizers",
			`{"type":"Split","pattern":{"Regex":"|a"},"behavior":"Isolated"}`, `{"type":"Split","pattern":{"Regex":"|."},"behavior":"Isolated"}`, `{"type":"ByteLevel","add_prefix_space":false}`), strings.Repeat("b", n)},
		"bytes": {`,"normalizer":` + replace("b", strings.Repeat("a", 4)) + `,"pre_tokenizer":{"type":"ByteLevel","use_regex":false}`, strings.Repeat("b", n)},
	} {
		tok, err := ParseHuggingFace(small(test.sections))
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		used := allocated(func() { ids, err = tok.Encode(test.text) })
		if most := 4096; err != nil || used/len(test.text) > most {
			t.Errorf("%s: %d ids, error %v; %d bytes were used for each of the text, want at most %d", name, len(ids), err, used/len(test.text), most)
		}
	}
}
