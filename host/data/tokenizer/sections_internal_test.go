package tokenizer

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// letters is a model with a token for each of a few characters, and no added tokens.
const letters = `{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"aa":3,"\u2581":4,"<0x61>":5},"merges":["a a"]}`

// small returns a tokenizer.json with that model and other sections.
func small(sections string) []byte { return []byte(`{"model":` + letters + sections + `}`) }

// TestBounds checks that deeply nested sections are errors that take little memory.
func TestBounds(t *testing.T) {
	deep := func(key, inner string) string {
		return strings.Repeat(`{"type":"Sequence","`+key+`":[`, 4000) + inner + strings.Repeat("]}", 4000)
	}
	for name, test := range map[string]struct{ sections, want string }{
		"normalizer": {`,"normalizer":` + deep("normalizers", `{"type":"NFC"}`),
			"normalizer: values are nested more than 32 deep"},
		"pre-tokenizer": {`,"pre_tokenizer":` + deep("pretokenizers", `{"type":"ByteLevel"}`),
			"pre_tokenizer: values are nested"},
		"decoder": {`,"decoder":` + deep("decoders", `{"type":"Fuse"}`),
			"decoder: values are nested"},
		"post-processor": {`,"post_processor":` + deep("processors", `{"type":"ByteLevel"}`),
			"post_processor: values are nested"},
	} {
		var err error
		used := allocated(func() { _, err = ReadHuggingFace(small(test.sections), nil) })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %.200v, want %s", name, err, test.want)
		}
		if used > 16<<20 {
			t.Errorf("%s: %d bytes were used to find that out", name, used)
		}
	}
}

// TestLargeFile checks that a very large file is an error.
func TestLargeFile(t *testing.T) {
	testlevel.Long(t, "it reads 128 MiB")
	path := filepath.Join(t.TempDir(), DefinitionFile)
	testfile.Write(t, path, "")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("no file of this size can be made:", err)
	}
	if _, err := LoadHuggingFace(path); err == nil ||
		!strings.Contains(err.Error(), path+" is too large") {
		t.Errorf("error %v, want one about the size of %s", err, path)
	}
}

// allocated returns the total number of bytes that a function allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestMemory checks that memory is proportional to the text. It counts all allocations, of which at
// most a quarter is in use at a time.
func TestMemory(t *testing.T) {
	testlevel.Long(t, "long texts")
	n := 1 << 16
	for name, test := range map[string]struct{ sections, text string }{
		"one word": {``, strings.Repeat("a", n)},
	} {
		tok := parsed(t, small(test.sections))
		var ids []int32
		var err error
		used := allocated(func() { ids, err = tok.Encode(test.text) })
		if most := 4096; err != nil || used/len(test.text) > most {
			t.Errorf("%s: %d ids, error %v; %d bytes were used for each of the text, want at most %d", name,
				len(ids), err, used/len(test.text), most)
		}
	}
}

// TestManyMarks checks that normalization adds nothing to letters with many combining marks.
func TestManyMarks(t *testing.T) {
	acute, below := strings.Repeat("\u0301", 40), strings.Repeat("\u0323", 40)
	for _, c := range []struct{ form, text, want string }{
		{"NFC", "a" + acute, "á" + acute[2:]},
		{"NFC", "ﬁa" + acute[:20] + below[:20] + "é", "ﬁạ" + below[2:20] + acute[:20] + "é"},
	} {
		normalize, err := newNormalizer([]byte(`{"type": "` + c.form + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := normalize.apply(c.text); got != c.want {
			t.Errorf("%s of %+q is %+q, want %+q", c.form, c.text, got, c.want)
		}
	}
}
