package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
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
			tok := parsed(t, small(test.sections))
			var ids []int32
			var err error
			used := allocated(func() { ids, err = tok.Encode(text) })
			if grown, ok := errors.AsType[*growthError](err); !ok || grown.section != test.want {
				t.Fatalf("%d ids, error %v, want one about the %s", len(ids), err, test.want)
			}
			if most := 1000 * len(text); used > most {
				t.Errorf("%d bytes were used to find that out, want at most %d", used, most)
			}
		})
	}
	tok := parsed(t, small(`,"decoder":`+sequence("decoders", doubling(60)...)))
	if text, err := tok.Decode([]int32{1, 2, 3}); err == nil {
		t.Errorf("a decoder makes %d bytes of four", len(text))
	}
}

// TestUnicodeGrows: what Unicode's normal forms make of a text is never too long, whatever characters it has.
func TestUnicodeGrows(t *testing.T) {
	testlevel.Long(t, "every character of Unicode")
	for form := range forms {
		tok := parsed(t, small(`,"normalizer":`+sequence("normalizers", `{"type":"`+form+`"}`, replace(" ", "▁"))))
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
		"long added token":  {`,"added_tokens":[{"id":6,"content":"aaaa","normalized":true}],"normalizer":` + replace("a", strings.Repeat("b", 1000)), "added_tokens[0]: normalizer"},
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
	testlevel.Long(t, "it reads 128 MiB")
	path := filepath.Join(t.TempDir(), DefinitionFile)
	testfile.Write(t, path, "")
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
	testlevel.Long(t, "long texts")
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
		tok := parsed(t, small(test.sections))
		var ids []int32
		var err error
		used := allocated(func() { ids, err = tok.Encode(test.text) })
		if most := 4096; err != nil || used/len(test.text) > most {
			t.Errorf("%s: %d ids, error %v; %d bytes were used for each of the text, want at most %d", name, len(ids), err, used/len(test.text), most)
		}
	}
}

var forms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// TestManyMarks: a normal form has only what is in the text, however many marks a letter has.
func TestManyMarks(t *testing.T) {
	acute, below := strings.Repeat("\u0301", 40), strings.Repeat("\u0323", 40)
	for _, c := range []struct{ form, text, want string }{
		{"NFC", "a" + acute, "á" + acute[2:]},
		{"NFD", "á" + acute, "a\u0301" + acute},
		{"NFC", "ﬁa" + acute + below + "é", "ﬁạ" + below[2:] + acute + "é"},
		{"NFKC", "ﬁa" + strings.Repeat("\u0301\u0323", 40), "fiạ" + below[2:] + acute},
		{"NFKD", "ﬁạ" + acute + "\u034f" + acute, "fia\u0323" + acute + "\u034f" + acute},
	} {
		normalize, err := newNormalizer([]byte(`{"type": "` + c.form + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := normalize(c.text, false, mostOf(c.text)); err != nil || got != c.want {
			t.Errorf("%s of %+q is %+q, %v, want %+q", c.form, c.text, got, err, c.want)
		}
	}
}

// TestFormsByRule: where no letter has many marks, both ways give the same.
func TestFormsByRule(t *testing.T) {
	corpus := testfile.Read(t, "testdata/corpus.txt")
	texts := []string{string(corpus)}
	pool := []rune("aeounAK ﬁΩÅ각한가각कड\u093c\u09c7\u09be\u0300\u0301\u0302\u0308\u030a\u0323\u0327\u0338\u0345\u05b4\u0f71\u0f72\u1100\u1161\u11a8\u2126\u212b\u3099\u0344\u0340\u2f71\U0001d15e\U0001d165")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text := make([]rune, 1+rng.IntN(12))
		for i := range text {
			text[i] = pool[rng.IntN(len(pool))]
		}
		texts = append(texts, string(text))
	}
	for name, form := range forms {
		for _, text := range texts {
			if got, want := inFormByRule(form, text), form.String(text); got != want {
				t.Fatalf("%s of %+q is %+q, want %+q", name, text, got, want)
			}
		}
	}
}

// TestSplits: patterns cut where the original library does, empty matches included. The words are those of tokenizers
// 0.23.3, pre_tokenizers.Split(Regex(pattern), behavior, invert).pre_tokenize_str(text).
func TestSplits(t *testing.T) {
	var list []struct {
		Pattern, Text, Behavior string
		Invert                  bool
		Words                   []string
	}
	testfile.ReadJSON(t, "testdata/splits.json", &list)
	if len(list) < 60 {
		t.Fatalf("%d cases", len(list))
	}
	for _, c := range list {
		var p preTokenizer
		if err := p.addSplit(c.Pattern, c.Behavior, c.Invert); err != nil {
			t.Fatal(err)
		}
		pieces, err := p.cutters[0].cut(nil, piece{c.Text, true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, piece := range pieces {
			got = append(got, piece.text)
		}
		if !slices.Equal(got, c.Words) {
			t.Errorf("%s, %s, invert %v: %q is cut into %q, want %q", c.Pattern, c.Behavior, c.Invert, c.Text, got, c.Words)
		}
	}
}

// TestMatchTimeout: an expression that takes forever is an error that names it, and not the whole text.
func TestMatchTimeout(t *testing.T) {
	before := matchTimeout
	matchTimeout = 100 * time.Millisecond
	defer func() { matchTimeout = before }()
	var p preTokenizer
	if err := p.addSplit(`(a+)+$`, "Isolated", false); err != nil {
		t.Fatal(err)
	}
	_, err := p.cutters[0].cut(nil, piece{strings.Repeat("a", 5000) + "b", true})
	if err == nil || !strings.Contains(err.Error(), `pattern "(a+)+$": no match was found, nor that there is none, within 100ms in a text of 5001 bytes`) || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
}

// TestOtherDialect: expressions that mean something else in the original library are refused; those of published models are not.
func TestOtherDialect(t *testing.T) {
	for _, expr := range []string{`[[:punct:]]`, `[^[:space:]]`, `[\p{L}&&[^\p{Han}]]+`, `a{,2}`, `[a-z-[aeiou]]`, `(?m).`, `(?im:x)`, `(?i)ß`} {
		var unsupported *UnsupportedError
		if err := (&preTokenizer{}).addSplit(expr, "Isolated", false); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", expr, err)
		}
	}
	for _, expr := range []string{`\[[\[\]&]+`, `a{2,}`, `(?i:'s|'t)|\s+(?!\S)`, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", `\{,`} {
		if err := (&preTokenizer{}).addSplit(expr, "Isolated", false); err != nil {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
