package arrange

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// wideInfo is a tokenizer whose ids need 4 bytes.
var wideInfo = tokenizer.Info{Name: "wide", VocabSize: 1 << 20, BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: strings.Repeat("a", 64)}

// writeTokens makes a token file of one document.
func writeTokens(t testing.TB, info tokenizer.Info, ids []int32) *dataset.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.tokens")
	w, err := dataset.NewWriter(vfs.At(path), info)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.WriteDocument(ids); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	f, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// counting returns 0, 1, 2, …, n−1 modulo vocab.
func counting(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i % vocab)
	}
	return ids
}
