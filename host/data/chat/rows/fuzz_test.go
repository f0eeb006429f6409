package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/fileheader"
)

// FuzzFile: a chat file, whatever its header says and whatever follows it, is refused or
// gives rows whose places are all explained by documents.
func FuzzFile(f *testing.F) {
	whole, err := os.ReadFile(lengths(f, 4, 3, 6).Path())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[fileheader.TextOffset:fileheader.TextOffset+binary.LittleEndian.Uint32(whole[12:])], whole[headerSize:])
	short, err := json.Marshal(Header{Origin: origin, SHA256: zeros, Documents: 1, Tokens: 2, Learned: 1, Longest: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(short, []byte{1, 0, 0, 0, 2, 0, 0, 0x80, 2, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte(`{}`), []byte{})
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		content := make([]byte, headerSize, headerSize+len(payload))
		copy(content, Magic)
		binary.LittleEndian.PutUint32(content[8:], formatVersion)
		binary.LittleEndian.PutUint32(content[12:], uint32(len(header)))
		copy(content[fileheader.TextOffset:], header)
		content = append(content, payload...)
		file, err := newFile("fuzz", bytes.NewReader(content), int64(len(content)))
		if err != nil {
			if _, ok := errors.AsType[*FormatError](err); !ok {
				t.Fatalf("%v is no FormatError", err)
			}
			return
		}
		checkRows(t, file)
	})
}

// checkRows reads the rows of a file that was opened.
func checkRows(t *testing.T, file *File) {
	intact := file.Verify(context.Background()) == nil
	s, err := NewSampler(file, Config{Length: 5, Batch: 2, Epochs: 2, Packing: FirstFit})
	if err != nil {
		return
	}
	batch := []Row{NewRow(5), NewRow(5)}
	for step := range min(s.Steps(), 50) {
		filled, err := s.At(step, 0, batch)
		if _, badID := errors.AsType[*tokenizer.RangeError](err); err != nil && (intact || !badID) {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		if filled == 0 {
			t.Fatalf("step %d is empty", step)
		}
		for _, r := range batch {
			checkRow(t, r, int32(file.Header().Tokenizer.VocabSize))
		}
	}
}

// checkRow demands what holds for every row.
func checkRow(t *testing.T, r Row, vocabulary int32) {
	for i, segment := range r.Segments {
		if r.Weights[i] != 0 && (i+1 == len(r.Segments) || segment == NoDocument || r.Segments[i+1] != segment) {
			t.Fatalf("place %d predicts another document: %+v", i, r)
		}
		if segment == NoDocument && (r.Tokens[i] != 0 || r.Positions[i] != 0) {
			t.Fatalf("place %d has no document and is not empty: %+v", i, r)
		}
		if r.Tokens[i] < 0 || r.Tokens[i] >= vocabulary {
			t.Fatalf("place %d has a token outside the vocabulary: %+v", i, r)
		}
	}
}
