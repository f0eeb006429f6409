package data

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/vfstest"
)

// corpus writes n numbered files with different texts. It returns the folder and the texts in
// order.
func corpus(t testing.TB, n int) (dir string, texts []string) {
	dir = t.TempDir()
	files := map[string]string{}
	for i := range n {
		text := fmt.Sprintf("document %d: %s\n", i, strings.Repeat("é", i%17))
		files[fmt.Sprintf("d%d/%04d.txt", i/10, i)] = text
		texts = append(texts, text)
	}
	testfile.Tree(t, dir, files)
	return dir, texts
}

// opened holds the open files of a dataset.
type opened struct{ Train, Val *dataset.File }

func prepare(t testing.TB, options PrepareOptions) (*Manifest, *opened) {
	t.Helper()
	if options.Out == "" {
		options.Out = t.TempDir()
	}
	if options.Tokenizer == nil {
		options.Tokenizer = tokenizer.Bytes{}
	}
	if options.Files == nil {
		options.Files = vfstest.NoSync
	}
	m, err := Prepare(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	if got := damaged(t, options.Out); len(got) > 0 {
		t.Fatalf("%q are damaged", got)
	}
	return m, &opened{open(t, filepath.Join(options.Out, dataset.Texts.Train)),
		open(t, filepath.Join(options.Out, dataset.Texts.Val))}
}

// manifestIn reads the manifest of a dataset.
func manifestIn(t testing.TB, dir string) *Manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, dataset.Texts.Manifest))
	m := &Manifest{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func openTokenizer(t testing.TB, name string) tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func open(t testing.TB, paths ...string) *dataset.File {
	t.Helper()
	f, err := dataset.Open(paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
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
		t.Fatalf("%s: %d documents, want %d, each behind a marker", f.Path(), len(documents)-1,
			f.Header().Documents)
	}
	return documents[1:]
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
