package gguf_test

import (
	"bytes"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
)

// FuzzReader: no bytes make the reader panic, and of a file that it accepts every tensor
// can be read.
func FuzzReader(f *testing.F) {
	f.Add(small(f))
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, info := range file.Tensors() {
			values, err := file.Values(info)
			n := 1
			for _, d := range info.Shape {
				n *= d
			}
			if err != nil || len(values) != n {
				t.Fatalf("tensor %q of shape %v has %d values, error %v", info.Name, info.Shape, len(values), err)
			}
		}
	})
}
