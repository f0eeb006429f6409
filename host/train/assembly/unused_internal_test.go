package assembly

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/arrange"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestUnusedRowsArePadding: rows of a last batch that is not full are padding, which quantizers see as zeros, where documents are
// kept apart.
func TestUnusedRowsArePadding(t *testing.T) {
	const context, batch = 3, 4
	path := filepath.Join(t.TempDir(), "v.tokens")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{Tokenizer: tokenizer.Info{Name: "test", VocabSize: 9, BOS: 1, EOS: tokenizer.NoToken, SHA256: strings.Repeat("0", 64)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range [][]int32{{5, 6, 7}, {8, 5}} { // each behind its begin token
		if err := w.WriteDocument(document, nil); err != nil {
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
	defer f.Close()
	s, err := arrange.NewSequential(f, context, batch)
	if err != nil {
		t.Fatal(err)
	}
	d := &documentsInOrder{s, context, tokenizer.Info{BOS: 1, EOS: tokenizer.NoToken}, make([]int32, s.BatchLen())}
	dst := make([]int32, d.BatchLen())
	rows, _, err := d.At(0, dst)
	if err != nil || rows != 2 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	for i, row := range model.DocumentRows(dst, context) {
		for place, segment := range row.Segments {
			if (segment == model.Padding) != (i >= rows) || i >= rows && place > 0 && row.Weight(place) != 0 {
				t.Errorf("row %d: segments %v", i, row.Segments)
			}
		}
	}
}
