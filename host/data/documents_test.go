package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/effort"
)

// TestManyDocuments: a document takes 16 bytes, whatever file it is in.
func TestManyDocuments(t *testing.T) {
	for _, want := range []struct {
		file       int
		start, end int64
	}{{0, 0, 0}, {1, 2, 3}, {1 << 31, 1<<47 + 5, 1<<48 - 1}, {1<<32 - 1, 1<<48 - 1, 1<<48 - 1}} {
		d := newDocument(want.file, want.start, want.end)
		if d.file() != want.file || d.start() != want.start || d.start()+d.length() != want.end {
			t.Errorf("%+v became %d, %d, %d", want, d.file(), d.start(), d.length())
		}
	}
}

// TestLongDocuments: a long document has the tokens that it has as a whole, between short
// ones and alone.
func TestLongDocuments(t *testing.T) {
	effort.Long(t, "documents of several pieces, with three tokenizers")
	dir := t.TempDir()
	var text strings.Builder
	for i := range 30000 {
		fmt.Fprintf(&text, "word%d, größer als %x!\n  ", i%997, i)
	}
	long := text.String()
	if len(long) < 2*pieceSize {
		t.Fatalf("the long text has %d bytes, want several pieces", len(long))
	}
	writeTree(t, dir, map[string]string{"a": "short", "b": long, "c": "short, too", "d": strings.Repeat("x", 3*pieceSize), "e": "last"})
	for _, name := range []string{"bytes", "tokenizer/testdata/llama3.tokenizer.json", "tokenizer/testdata/llama2.tokenizer.json"} {
		tok, err := tokenizer.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		m, d := prepare(t, PrepareOptions{Inputs: []string{dir}, Tokenizer: tok, ValFraction: 0.2})
		if m.Train.Documents != 4 {
			t.Errorf("%s: %+v", name, m.Train)
		}
		var all [][]int32
		for _, f := range []*dataset.File{d.Train, d.Val} {
			ids := make([]int32, f.Len())
			if err := f.ReadTokens(ids, 0); err != nil {
				t.Fatal(err)
			}
			all = append(all, cutAt(ids, tok.Info().BOS)...)
		}
		for _, text := range []string{"short", long, "short, too", strings.Repeat("x", 3*pieceSize), "last"} {
			ids, err := tok.Encode(text)
			if err != nil || !slices.ContainsFunc(all, func(document []int32) bool { return slices.Equal(document, ids) }) {
				t.Errorf("%s: the document of %d bytes is missing, %v", name, len(text), err)
			}
		}
	}
}

// cutAt returns the ids behind each mark.
func cutAt(ids []int32, mark int32) (list [][]int32) {
	for _, id := range ids {
		if id == mark {
			list = append(list, nil)
		} else {
			list[len(list)-1] = append(list[len(list)-1], id)
		}
	}
	return list
}
