package data

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestLongDocuments checks that documents longer than a batch are encoded as a whole.
func TestLongDocuments(t *testing.T) {
	testlevel.Long(t, "documents longer than a batch, with three tokenizers")
	dir := t.TempDir()
	var text strings.Builder
	for i := range 30000 {
		fmt.Fprintf(&text, "word%d, größer als %x!\n  ", i%997, i)
	}
	long := text.String()
	if len(long) < 2*batchBytes {
		t.Fatalf("the long text has %d bytes, want more than two batches", len(long))
	}
	testfile.Tree(t, dir, map[string]string{"a": "short", "b": long, "c": "short, too",
		"d": strings.Repeat("x", 3*batchBytes), "e": "last"})
	for _, name := range []string{"bytes", "tokenizer/testdata/llama3.tokenizer.json",
		"tokenizer/testdata/llama2.tokenizer.json"} {
		tok := openTokenizer(t, name)
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
		for _, text := range []string{"short", long, "short, too", strings.Repeat("x", 3*batchBytes),
			"last"} {
			ids, err := tok.Encode(text)
			if err != nil || !slices.ContainsFunc(all,
				func(document []int32) bool { return slices.Equal(document, ids) }) {
				t.Errorf("%s: the document of %d bytes is missing, %v", name, len(text), err)
			}
		}
	}
}

// cutAt returns the ids after each mark.
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

// divided copies the training file of a dataset to several files, each of which ends with the
// document that reaches a number of tokens.
func divided(t *testing.T, out string, tokens int64) (paths []string) {
	t.Helper()
	m := manifestIn(t, out)
	texts := cutAt(tokensOf(t, open(t, filepath.Join(out, dataset.Texts.Train))), m.Tokenizer.BOS)
	for at := 0; at < len(texts); {
		path := filepath.Join(out, fmt.Sprintf("train-%03d.tokens", len(paths)))
		w, err := dataset.NewWriter(vfs.At(path), m.Origin)
		if err != nil {
			t.Fatal(err)
		}
		for size := int64(0); at < len(texts) && size < tokens; at++ {
			if err := w.WriteDocument(texts[at], nil); err != nil {
				t.Fatal(err)
			}
			size += int64(len(texts[at])) + 1
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// TestSeveralFiles checks that several files have the same tokens in the same order as one.
func TestSeveralFiles(t *testing.T) {
	dir, _ := corpus(t, 50)
	options := PrepareOptions{Inputs: []string{dir}, ValFraction: 0.1, Out: t.TempDir()}
	whole, one := prepare(t, options)
	paths := divided(t, options.Out, 300)
	several := open(t, filepath.Join(options.Out, "train-*.tokens"))
	if !slices.Equal(several.Paths(), paths) || len(paths) < 2 ||
		several.Header().Documents != whole.Train.Documents {
		t.Errorf("%q have the header %+v", several.Paths(), several.Header())
	}
	if diff := cmp.Diff(tokensOf(t, one.Train), tokensOf(t, several)); diff != "" {
		t.Error("the tokens differ")
	}
}

func tokensOf(t *testing.T, f *dataset.File) []int32 {
	t.Helper()
	ids := make([]int32, f.Len())
	for at := range ids { // one by one, then all, across file boundaries
		if err := f.ReadTokens(ids[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]int32, f.Len())
	if err := f.ReadTokens(all, 0); err != nil || !slices.Equal(ids, all) {
		t.Fatalf("tokens one by one and at once differ: %v", err)
	}
	return all
}

func TestOpenSeveral(t *testing.T) {
	dir, _ := corpus(t, 50)
	out := t.TempDir()
	prepare(t, PrepareOptions{Inputs: []string{dir}, Out: out})
	paths := divided(t, out, 100)
	llama3 := openTokenizer(t, "tokenizer/testdata/llama3.tokenizer.json")
	_, other := prepare(t, PrepareOptions{Inputs: []string{dir}, Tokenizer: llama3})
	first, second := paths[0], paths[1]
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	for want, paths := range map[string][]string{
		"no token file given": nil,
		"no such file":        {first, second},
		"does not exist":      {first, filepath.Join(out, "nothing*")},
		"another tokenizer":   {first, other.Train.Path()},
	} {
		if _, err := dataset.Open(paths...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", paths, err, want)
		}
	}
}

// TestOpenOtherVocabulary checks that files with different vocabulary sizes cannot be opened as
// one: ids could exceed its size.
func TestOpenOtherVocabulary(t *testing.T) {
	var paths []string
	for i, size := range []int{100, 200} {
		info := tokenizer.Bytes{}.Info()
		info.VocabSize = size
		path := filepath.Join(t.TempDir(), dataset.Texts.Train)
		w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: info})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteDocument([]int32{int32(99 + 100*i)}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	f, err := dataset.Open(paths...)
	if err == nil {
		ids := make([]int32, f.Len())
		t.Errorf("a vocabulary of %d tokens, and the ids %v: %v", f.Tokenizer().VocabSize, ids,
			f.ReadTokens(ids, 0))
		f.Close()
	} else if !strings.Contains(err.Error(), "another tokenizer") {
		t.Error(err)
	}
}
