// Command tokencheck compares the tokenizers of package tokenizer with ids computed by another program.
// scripts/compare-tokenizers.py writes the tokenizers, the texts and the ids, and runs it.
//
//	tokencheck DIR          compare the ids of DIR/NAME/ids.jsonl, for texts in DIR/texts.jsonl
//	tokencheck -speed DIR   say in how much processor time DIR/corpus.txt is encoded
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/resources"
)

func main() {
	log.SetFlags(0)
	speed := flag.Bool("speed", false, "measure")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: tokencheck [-speed] DIR")
	}
	names, err := filepath.Glob(filepath.Join(flag.Arg(0), "*", tokenizer.DefinitionFile))
	if err != nil || len(names) == 0 {
		log.Fatalf("no tokenizers in %s", flag.Arg(0))
	}
	differences := 0
	for _, name := range names {
		t, err := tokenizer.LoadHuggingFace(name)
		if err != nil {
			log.Fatal(err)
		}
		if *speed {
			err = measure(t, filepath.Join(flag.Arg(0), "corpus.txt"))
		} else {
			var n int
			n, err = compare(t, filepath.Join(flag.Arg(0), "texts.jsonl"), filepath.Join(filepath.Dir(name), "ids.jsonl"))
			differences += n
		}
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
	if differences > 0 {
		log.Fatalf("%d texts have other ids", differences)
	}
}

// lines calls each with every line of a file of JSON.
func lines[T any](path string, each func(T) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		var value T
		if err := json.Unmarshal(scan.Bytes(), &value); err != nil {
			return err
		}
		if err := each(value); err != nil {
			return err
		}
	}
	return scan.Err()
}

// compare counts the texts that have other ids than the file says.
func compare(t *tokenizer.HuggingFace, texts, ids string) (different int, err error) {
	var want [][]int32
	if err := lines(ids, func(one []int32) error { want = append(want, one); return nil }); err != nil {
		return 0, err
	}
	i := 0
	err = lines(texts, func(text string) error {
		if i == len(want) {
			return fmt.Errorf("more texts than the %d lists of ids", i)
		}
		got, err := t.Encode(text)
		if err != nil || !slices.Equal(got, want[i]) {
			if different++; different <= 3 {
				fmt.Printf("%s: %q:\n got %v %v\nwant %v\n", t.Info().Name, text, got, err, want[i])
			}
		}
		i++
		return nil
	})
	fmt.Printf("%s: %d texts, %d with other ids\n", t.Info().Name, i, different)
	return different, err
}

// measure prints megabytes for a second of processor time, in texts of 64 KiB, the best of
// three rounds.
func measure(t *tokenizer.HuggingFace, corpus string) error {
	text, err := os.ReadFile(corpus)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	best := time.Duration(0)
	for range 3 {
		begin := resources.ProcessorTime()
		for at := 0; at < len(text); at += 1 << 16 {
			part := text[at:min(at+1<<16, len(text))]
			if _, err := t.Encode(string(part)); err != nil {
				return err
			}
		}
		if took := resources.ProcessorTime() - begin; best == 0 || took < best {
			best = took
		}
	}
	fmt.Printf("%s %.1f\n", t.Info().Name, float64(len(text))/1e6/best.Seconds())
	return nil
}
