package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestConversations checks that documents are read as written, also in part, and counted in the
// header.
func TestConversations(t *testing.T) {
	documents := [][]int32{{5, 6, 999}, {0, 1}}
	loss := [][]bool{{false, true, false}, {true, true}}
	f := store(t, origin, documents, loss)
	for i := range documents {
		for n := range len(documents[i]) + 1 {
			ids, learned := make([]int32, n), make([]bool, n)
			if err := f.ReadDocument(i, ids, learned); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(documents[i][:n], ids) + cmp.Diff(loss[i][:n], learned); diff != "" {
				t.Errorf("document %d, %d tokens:\n%s", i, n, diff)
			}
		}
	}
	h := f.Header()
	if h.Documents != 2 || h.Tokens != 5 || h.Learned != 3 || h.Longest != 3 || h.Origin != origin ||
		!f.Conversations() {
		t.Errorf("the header is %+v", h)
	}
	if err := f.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct{ document, n int }{{-1, 0}, {2, 0}, {1, 3}} {
		if err := f.ReadDocument(bad.document, make([]int32, bad.n), make([]bool, bad.n)); err == nil {
			t.Errorf("%d tokens of document %d are read", bad.n, bad.document)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("verifying after the end: %v", err)
	}
}

// TestConversationsMistakes checks that documents without loss or with wrong ids are errors, and
// that aborting leaves no file.
func TestConversationsMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.chat")
	w, err := NewWriter(vfs.At(path), origin)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ids  []int32
		loss []bool
		want string
	}{
		{nil, nil, "0 tokens has none that counts"},
		{[]int32{1}, []bool{true}, "1 tokens has none that counts"},
		{[]int32{1, 2}, []bool{true, false}, "2 tokens has none that counts"},
		{[]int32{1, 2}, []bool{true}, "2 tokens, but a loss mask of 1"},
		{[]int32{1, 1000}, []bool{false, true}, "token id 1000 is not in the vocabulary"},
		{[]int32{-1, 1}, []bool{false, true}, "token id -1 is not in the vocabulary"},
	} {
		if err := w.WriteDocument(c.ids, c.loss); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.ids, err, c.want)
		}
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := NewWriter(vfs.At(path), Origin{}); err == nil {
		t.Error("a file without a vocabulary is begun")
	}
}

// TestDamage checks that Open or Verify detects each changed bit, and a truncated file.
func TestDamage(t *testing.T) {
	testlevel.Long(t, "every bit of a file, turned over")
	whole := testfile.Read(t, lengths(t, 4, 3).Path())
	path := filepath.Join(t.TempDir(), "damaged.chat")
	check := func(content []byte, what string, args ...any) {
		t.Helper()
		testfile.Write(t, path, content)
		f, err := Open(path)
		if err == nil {
			err = f.Verify(t.Context())
			f.Close()
		}
		_, format := errors.AsType[*FormatError](err)
		_, id := errors.AsType[*tokenizer.RangeError](err)
		if !format && !id {
			t.Errorf(what+": %v", append(args, err)...)
		}
	}
	text := textOffset + int(binary.LittleEndian.Uint32(whole[12:]))
	for at := range whole {
		// Skip the header text, because changed names in it are not detected, and most zeros after it.
		if at > textOffset && at < text || at > text+8 && at < headerSize-8 {
			continue
		}
		for bit := range 8 {
			damaged := append([]byte(nil), whole...)
			damaged[at] ^= 1 << bit
			check(damaged, "bit %d of byte %d is turned over", bit, at)
		}
	}
	for _, n := range []int{0, 10, headerSize - 1, headerSize, len(whole) - entrySize,
		len(whole) - 1} {
		check(whole[:n], "only %d bytes are left", n)
	}
	check(append(append([]byte(nil), whole...), 0), "a byte follows")
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Open(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestConversationsHeader checks that wrong values of header fields are errors.
func TestConversationsHeader(t *testing.T) {
	for want, change := range map[string]func(*Header){
		"vocab_size 0":                 func(h *Header) { h.Tokenizer.VocabSize = 0 },
		"states 3 documents":           func(h *Header) { h.Documents++ },
		"documents -1":                 func(h *Header) { h.Documents = -1 },
		"and 8 tokens":                 func(h *Header) { h.Tokens++ },
		"learned -1":                   func(h *Header) { h.Learned = -1 },
		"longest 8":                    func(h *Header) { h.Longest = 8 },
		`tokenizer.sha256 "x"`:         func(h *Header) { h.Tokenizer.SHA256 = "x" },
		`template_sha256 "x"`:          func(h *Header) { h.TemplateSHA256 = "x" },
		"sections have 31 bytes":       func(h *Header) { h.TemplateSHA256 = "" }, // a file of texts
		`sha256 "` + zeros[1:] + `G"`:  func(h *Header) { h.SHA256 = zeros[1:] + "G" },
		"states 9223372036854775807 d": func(h *Header) { h.Documents = 1<<63 - 1 },
	} {
		h := Header{TokenBytes: 2, Documents: 2, Tokens: 7, Learned: 5, Longest: 4, Origin: origin,
			SHA256: zeros}
		size := int64(headerSize + 7*2 + 1 + 2*entrySize)
		for _, changed := range []bool{false, true} {
			if changed {
				change(&h)
			}
			block, err := h.encode()
			if err != nil {
				t.Fatal(err)
			}
			_, err = parseHeader(block, size)
			if changed && (err == nil || !strings.Contains(err.Error(), want)) || !changed && err != nil {
				t.Errorf("changed %v: got %v, want %s", changed, err, want)
			}
		}
	}
}

var zeros = strings.Repeat("0", 64)

// origin describes made-up conversations with a vocabulary of 1000.
var origin = Origin{Tokenizer: tokenizer.Info{Name: "made up", VocabSize: 1000,
	BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: zeros}, Template: "t",
	TemplateSHA256: zeros, TrainOn: "all_turns"}

// store writes documents to a token file and opens it; learned is nil for texts.
func store(t testing.TB, origin Origin, documents [][]int32, learned [][]bool) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	w, err := NewWriter(vfs.At(path), origin)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, ids := range documents {
		var mask []bool
		if learned != nil {
			mask = learned[i]
		}
		if err := w.WriteDocument(ids, mask); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path)
}

// lengths stores conversations of these lengths; document i has the tokens 10i, 10i+1, … modulo
// 1000, and all but its first count in the loss.
func lengths(t testing.TB, lengths ...int) *File {
	var documents [][]int32
	var learned [][]bool
	for i, n := range lengths {
		ids, mask := make([]int32, n), make([]bool, n)
		for j := range ids {
			ids[j], mask[j] = int32((10*i+j)%1000), j > 0
		}
		documents, learned = append(documents, ids), append(learned, mask)
	}
	return store(t, origin, documents, learned)
}
