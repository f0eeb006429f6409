package testrun

import (
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// ChatFile writes a token file of conversations, each given by its ids and which of them carry loss, and returns its path.
func ChatFile(t testing.TB, info tokenizer.Info, documents iter.Seq2[[]int32, []bool]) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.chat")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{
		Tokenizer: info, Template: "chatml", TemplateSHA256: strings.Repeat("0", 64), TrainOn: "all_turns",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for ids, loss := range documents {
		if err := w.WriteDocument(ids, loss); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return path
}
