package fileheader_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/internal/fileheader"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestWriter: a file appears when it is whole, with its block before what was written; one
// that is given up leaves nothing.
func TestWriter(t *testing.T) {
	for _, finished := range []bool{true, false} {
		dir := t.TempDir()
		w, err := fileheader.Create(vfs.At(filepath.Join(dir, "name")))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"one", "two"} {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if sum := sha256.Sum256([]byte("onetwo")); w.SHA256() != hex.EncodeToString(sum[:]) {
			t.Errorf("the hash is %s", w.SHA256())
		}
		block, err := format.Encode(1, header{"x", 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(block); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "other")
		if _, err := os.Stat(other); err == nil {
			t.Error("the file is there before it is committed")
		}
		if !finished {
			if err := w.Abort(); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("what is left is %v, %v", left, err)
			}
			continue
		}
		if err := w.CommitAs(vfs.At(other)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(other)
		if err != nil || !bytes.Equal(text, append(block, "onetwo"...)) {
			t.Errorf("the file has %d bytes, %v", len(text), err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
}
