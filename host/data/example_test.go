package data_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Example converts texts to a dataset, and the dataset to batches.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for i := range 8 {
		text := strings.Repeat(fmt.Sprintf("text number %d. ", i), 20)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), []byte(text),
			0o644); err != nil {
			log.Fatal(err)
		}
	}

	out := filepath.Join(dir, "dataset")
	manifest, err := data.Prepare(context.Background(), data.PrepareOptions{
		Seed:        data.DefaultSplitSeed,
		Inputs:      []string{dir},
		Include:     []string{"*.txt"},
		Out:         out,
		Tokenizer:   tokenizer.Bytes{},
		ValFraction: 0.25,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(manifest.Train.Documents, "documents,", manifest.Train.Tokens, "tokens for training")
	fmt.Println(manifest.Val.Documents, "documents,", manifest.Val.Tokens, "tokens for validation")

	train, err := dataset.Open(filepath.Join(out, dataset.Texts.Train))
	if err != nil {
		log.Fatal(err)
	}
	defer train.Close()
	sampler, err := dataset.NewWindows(train, dataset.WindowsConfig{Context: 14, Batch: 2, Seed: 1337})
	if err != nil {
		log.Fatal(err)
	}
	batch := make([]int32, sampler.BatchLen())
	if err := sampler.At(0, batch); err != nil {
		log.Fatal(err)
	}
	text, err := tokenizer.Bytes{}.Decode(batch[:15])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("one window is %q\n", text)
	// Output:
	// 6 documents, 1806 tokens for training
	// 2 documents, 602 tokens for validation
	// one window is "t number 1. tex"
}
