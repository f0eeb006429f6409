package batching

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// wideInfo is a tokenizer whose ids need 4 bytes.
var wideInfo = tokenizer.Info{Name: "wide", VocabSize: 1 << 20, BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: strings.Repeat("a", 64)}

// origin is of made-up conversations with a vocabulary of 1000.
var origin = dataset.Origin{
	Tokenizer: tokenizer.Info{Name: "made up", VocabSize: 1000, BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: strings.Repeat("0", 64)},
	Template:  "t", TemplateSHA256: strings.Repeat("0", 64), TrainOn: "all_turns",
}

// write makes a token file of documents.
func write(t testing.TB, origin dataset.Origin, documents [][]int32, learned [][]bool) *dataset.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.tokens")
	w, err := dataset.NewWriter(vfs.At(path), origin)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, ids := range documents {
		var mask []bool
		if origin.Conversations() {
			mask = learned[i]
		}
		if err := w.WriteDocument(ids, mask); err != nil {
			t.Fatal(err)
		}
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

// writeTokens makes a token file of one text.
func writeTokens(t testing.TB, info tokenizer.Info, ids []int32) *dataset.File {
	return write(t, dataset.Origin{Tokenizer: info}, [][]int32{ids}, nil)
}

// lengths makes a token file of conversations of these lengths; document i has the tokens
// 10i, 10i+1, … modulo 1000, and all but its first are trained on.
func lengths(t testing.TB, lengths ...int) *dataset.File {
	var documents [][]int32
	var learned [][]bool
	for i, n := range lengths {
		ids, mask := make([]int32, n), make([]bool, n)
		for j := range ids {
			ids[j], mask[j] = int32((10*i+j)%1000), j > 0
		}
		documents, learned = append(documents, ids), append(learned, mask)
	}
	return write(t, origin, documents, learned)
}

// counting returns 0, 1, 2, …, n−1 modulo vocab.
func counting(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i % vocab)
	}
	return ids
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
