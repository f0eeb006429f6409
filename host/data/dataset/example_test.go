package dataset_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// ExampleRows stores two documents, and reads them as one row.
func ExampleRows() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "train.chat")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{
		Tokenizer: tokenizer.Bytes{}.Info(), Template: "chatml", TemplateSHA256: strings.Repeat("0", 64),
		TrainOn: "all_turns",
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"ab", "xyz"} {
		ids, loss := []int32{}, []bool{}
		for i := range len(text) {
			ids, loss = append(ids, int32(text[i])), append(loss, i > 0)
		}
		if err := w.WriteDocument(ids, loss); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		log.Fatal(err)
	}

	file, err := dataset.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	s, err := dataset.NewRows(file,
		dataset.RowsConfig{Length: 6, Batch: 1, Epochs: 1, Packing: dataset.FirstFit, InOrder: true})
	if err != nil {
		log.Fatal(err)
	}
	const context = 6
	rows := dataset.RowsOf(make([]int32, dataset.Planes*(context+1)), context)
	if _, err := s.At(0, 0, rows); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows[0].Tokens)
	fmt.Println(rows[0].Segments)
	fmt.Println(rows[0].Weight(0), rows[0].Weight(1))
	// Output:
	// [97 98 120 121 122 0 0]
	// [0 0 1 1 1 -1 -1]
	// 0 1
}
