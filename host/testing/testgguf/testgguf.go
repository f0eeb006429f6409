// Package testgguf reads GGUF files in tests. An error ends the test.
package testgguf

import (
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/vfs"
)

// Open opens the file at path, and closes it when the test ends.
func Open(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Data reads the data of a tensor.
func Data(t testing.TB, f *gguf.File, info gguf.Info) []byte {
	t.Helper()
	data, err := f.Bytes(info)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
