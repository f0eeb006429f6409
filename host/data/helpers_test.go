package data

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// corpus makes n files, each with a text that names it, and returns the folder
// and the texts in lexical order.
func corpus(t testing.TB, n int) (dir string, texts []string) {
	dir = t.TempDir()
	files := map[string]string{}
	for i := range n {
		text := fmt.Sprintf("document %d: %s\n", i, strings.Repeat("é", i%17))
		files[fmt.Sprintf("d%d/%04d.txt", i/10, i)] = text
		texts = append(texts, text)
	}
	writeTree(t, dir, files)
	return dir, texts
}

func prepare(t testing.TB, options PrepareOptions) (*Manifest, *opened) {
	t.Helper()
	if options.Out == "" {
		options.Out = t.TempDir()
	}
	if options.Tokenizer == nil {
		options.Tokenizer = tokenizer.Bytes{}
	}
	m, err := Prepare(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDataset(options.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return m, d
}

// documentsOf returns the texts in a token file of the byte tokenizer.
func documentsOf(t testing.TB, f *dataset.File) []string {
	t.Helper()
	if err := f.Verify(context.Background()); err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, f.Len())
	if err := f.ReadTokens(ids, 0); err != nil {
		t.Fatal(err)
	}
	text, err := tokenizer.Bytes{}.Decode(ids)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(text, "\x00")
	if documents[0] != "" || int64(len(documents)-1) != f.Header().Documents {
		t.Fatalf("%s: %d documents, want %d, each behind a marker", f.Path(), len(documents)-1, f.Header().Documents)
	}
	return documents[1:]
}
