package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// FuzzFile checks that a token file with any header and sections is rejected, or is readable unless
// an id exceeds the vocabulary.
func FuzzFile(f *testing.F) {
	for _, file := range []*File{lengths(f, 4, 3, 6), writeTokens(f, wideInfo, counting(10, 1000))} {
		whole := testfile.Read(f, file.Path())
		f.Add(whole[textOffset:textOffset+binary.LittleEndian.Uint32(whole[12:])], whole[headerSize:])
	}
	short, err := json.Marshal(Header{TokenBytes: 2, Origin: origin, SHA256: zeros, Documents: 1,
		Tokens: 2, Learned: 1, Longest: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(short, []byte{1, 0, 2, 0, 2, 2, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte(`{}`), []byte{})
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		content := make([]byte, headerSize, headerSize+len(payload))
		copy(content, magic)
		binary.LittleEndian.PutUint32(content[8:], formatVersion)
		binary.LittleEndian.PutUint32(content[12:], uint32(len(header)))
		copy(content[textOffset:], header)
		content = append(content, payload...)
		file, err := fromBytes(content)
		if err != nil {
			if _, ok := errors.AsType[*FormatError](err); !ok {
				t.Fatalf("%v is no FormatError", err)
			}
			return
		}
		checkRead(t, file)
	})
}

// fromBytes opens a file in memory.
func fromBytes(content []byte) (*File, error) {
	part, err := newPart("fuzz", struct {
		io.ReaderAt
		io.Closer
	}{bytes.NewReader(content), io.NopCloser(nil)}, int64(len(content)))
	if err != nil {
		return nil, err
	}
	return newFile([]filePart{part})
}

// checkRead reads all of a file.
func checkRead(t *testing.T, file *File) {
	intact := file.Verify(context.Background()) == nil
	ids := make([]int32, file.Len())
	err := file.ReadTokens(ids, 0)
	if _, badID := errors.AsType[*tokenizer.RangeError](err); err != nil && (intact || !badID) {
		t.Fatal(err)
	}
	if err != nil {
		return
	}
	at, all := 0, 0
	for i := range file.Documents() {
		n := file.Tokens(i)
		document, learned := make([]int32, n), make([]bool, n)
		if err := file.ReadDocument(i, document, learned); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids[at:at+n], document); diff != "" {
			t.Fatalf("document %d:\n%s", i, diff)
		}
		at += n
		for _, learn := range learned {
			if learn {
				all++
			}
		}
	}
	if intact && int64(all) != file.Header().Learned {
		t.Fatalf("%d tokens have loss, the header says %d", all, file.Header().Learned)
	}
}

// FuzzManifest checks that an accepted manifest survives a round trip.
func FuzzManifest(f *testing.F) {
	text, err := json.Marshal(Manifest{Version: manifestVersion, Origin: origin, ValFraction: 0.25,
		Seed: 1 << 63, Train: Part{Tokens: 1 << 40, SHA256: "ab"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":3,"inputs":null}`))
	f.Add([]byte(`{"version":3,"read":[{"format":"jsonl"}],"train":{"tokens":1}}`))
	f.Add([]byte(`{"version":4}`))
	f.Add([]byte(`{"version":1} x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil || m.Version != manifestVersion {
			return
		}
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("the manifest changed:\n%s", diff)
		}
	})
}
