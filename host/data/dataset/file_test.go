package dataset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// wideInfo describes a tokenizer whose ids need 4 bytes.
var wideInfo = tokenizer.Info{Name: "wide", VocabSize: 1 << 20, BOS: tokenizer.NoToken,
	EOS: tokenizer.NoToken, SHA256: strings.Repeat("a", 64)}

// writeTokens writes a token file of one document and opens it.
func writeTokens(t testing.TB, info tokenizer.Info, ids []int32) *File {
	return store(t, Origin{Tokenizer: info}, [][]int32{ids}, nil)
}

func openFile(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
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

func TestWriteAndRead(t *testing.T) {
	tests := map[string]struct {
		info      tokenizer.Info
		documents [][]int32
		want      []int32
		width     int
	}{
		"bytes": {tokenizer.Bytes{}.Info(), [][]int32{{1, 2, 255}, {}, {7}},
			[]int32{0, 1, 2, 255, 0, 0, 7}, 2},
		"wide":    {wideInfo, [][]int32{{1, 70000}, {1<<20 - 1}}, []int32{1, 70000, 1<<20 - 1}, 4},
		"nothing": {wideInfo, nil, nil, 4},
		"largest narrow": {tokenizer.Info{VocabSize: 1 << 16, BOS: 65535, EOS: tokenizer.NoToken,
			SHA256: wideInfo.SHA256}, [][]int32{{0}}, []int32{65535, 0}, 2},
		"begin and end": {tokenizer.Info{VocabSize: 10, BOS: 1, EOS: 2, SHA256: wideInfo.SHA256},
			[][]int32{{5}, {}, {6, 7}}, []int32{1, 5, 2, 1, 2, 1, 6, 7, 2}, 2},
		"the same token": {tokenizer.Info{VocabSize: 10, BOS: 1, EOS: 1, SHA256: wideInfo.SHA256},
			[][]int32{{5}, {6}}, []int32{1, 5, 1, 6}, 2},
		"end only": {tokenizer.Info{VocabSize: 10, BOS: tokenizer.NoToken, EOS: 0,
			SHA256: wideInfo.SHA256}, [][]int32{{5}, {6}}, []int32{5, 0, 6, 0}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := store(t, Origin{Tokenizer: test.info}, test.documents, nil)
			if h := f.Header(); h.TokenBytes != test.width || h.Documents != int64(len(test.documents)) {
				t.Errorf("the header is %+v", h)
			}
			got := make([]int32, f.Len())
			if err := f.ReadTokens(got, 0); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("tokens %v, %v; want %v", got, err, test.want)
			}
			if err := f.Verify(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadTokensRange(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(100, 1000))
	dst := make([]int32, 10)
	if err := f.ReadTokens(dst, 90); err != nil || dst[9] != 99 {
		t.Errorf("last ten: %v, %v", dst, err)
	}
	for _, at := range []int64{-1, 91, 100, 1 << 62, -1 << 63} {
		if err := f.ReadTokens(dst, at); err == nil {
			t.Errorf("ReadTokens at %d succeeded", at)
		}
	}
}

func TestWriterRefusesForeignIDs(t *testing.T) {
	w, err := NewWriter(vfs.At(filepath.Join(t.TempDir(), "x")),
		Origin{Tokenizer: tokenizer.Bytes{}.Info()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, id := range []int32{-1, 256} {
		var rangeErr *tokenizer.RangeError
		if err := w.WriteDocument([]int32{1, id}, nil); !errors.As(err, &rangeErr) ||
			rangeErr.ID != int64(id) {
			t.Errorf("id %d: error %v", id, err)
		}
	}
	if w.header.Tokens != 0 || w.header.Documents != 0 {
		t.Errorf("refused documents were counted: %+v", w.header)
	}
}

func TestStoredForeignID(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(10, 10))
	patch(t, f.Path(), headerSize+4*7, []byte{0, 0, 0, 0x80})
	var rangeErr *tokenizer.RangeError
	err := f.ReadTokens(make([]int32, 10), 0)
	if !errors.As(err, &rangeErr) || rangeErr.ID != 1<<31 ||
		!strings.Contains(err.Error(), "position 7") {
		t.Errorf("ReadTokens: %v", err)
	}
	if err := f.ReadTokens(make([]int32, 7), 0); err != nil {
		t.Errorf("ids before the damage: %v", err)
	}
	if err := f.Verify(context.Background()); !errors.As(err, &rangeErr) {
		t.Errorf("Verify: %v", err)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(1000, 1000))
	patch(t, f.Path(), headerSize+4*500, []byte{1})
	var format *FormatError
	if err := f.Verify(context.Background()); !errors.As(err, &format) ||
		!strings.Contains(err.Error(), "hash") {
		t.Errorf("Verify: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify after cancel: %v", err)
	}
}

func patch(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	testfile.Write(t, text, strings.Repeat("not a token file\n", 1000))
	f := writeTokens(t, wideInfo, counting(1000, 1000))
	if err := os.Truncate(f.Path(), headerSize+100); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, dir, f.Path()} {
		var format *FormatError
		if _, err := Open(path); !errors.As(err, &format) || format.Path != path {
			t.Errorf("Open(%s): %v, want a FormatError", path, err)
		}
	}
	if err := f.ReadTokens(make([]int32, 100), 0); err == nil {
		t.Error("reading a file that shrank succeeded")
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// TestAbortLeavesNoTrace checks that an aborted writer leaves the earlier file, and nothing else.
func TestAbortLeavesNoTrace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.tokens")
	testfile.Write(t, path, "before")
	w, err := NewWriter(vfs.At(path), Origin{Tokenizer: wideInfo})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteDocument(counting(1<<20, 1000), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "before" || len(entries) != 1 {
		t.Errorf("left %q, %v in %v", content, err, entries)
	}
}

func BenchmarkReadTokens(b *testing.B) {
	f := writeTokens(b, wideInfo, counting(1<<20, 1000))
	dst := make([]int32, 513)
	b.SetBytes(4 * 513)
	for i := range b.N {
		if err := f.ReadTokens(dst, int64(i*7919%(1<<20-513))); err != nil {
			b.Fatal(err)
		}
	}
}

// TestVerifyChunks checks that a file of three chunks is verified up to its last token.
func TestVerifyChunks(t *testing.T) {
	const chunk = 1 << 18 // tokens
	f := writeTokens(t, wideInfo, counting(2*chunk+1, 1000))
	if err := f.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	patch(t, f.Path(), headerSize+4*2*chunk, []byte{1})
	var format *FormatError
	if err := f.Verify(context.Background()); !errors.As(err, &format) {
		t.Errorf("a damaged last token: %v", err)
	}
}

// TestLimit checks that ids that are not below the limit are errors.
func TestLimit(t *testing.T) {
	f := writeTokens(t, wideInfo, []int32{1, 7, 2})
	f.Limit(8)
	dst := make([]int32, 3)
	if err := f.ReadTokens(dst, 0); err != nil || !slices.Equal(dst, []int32{1, 7, 2}) {
		t.Errorf("%v, error %v", dst, err)
	}
	f.Limit(7)
	var outside *tokenizer.RangeError
	if err := f.ReadTokens(dst, 0); !errors.As(err, &outside) || outside.ID != 7 ||
		outside.VocabSize != 7 {
		t.Errorf("error %v", err)
	}
	if err := f.Verify(t.Context()); !errors.As(err, &outside) {
		t.Errorf("verified: %v", err)
	}
}
