package gguf_test

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/cage-qat/cage/host/model/gguf"
)

func Example() {
	var file bytes.Buffer
	row := gguf.Tensor{Name: "row", Type: gguf.F16, Shape: []int{1, 2},
		Write: func(w io.Writer) error {
			_, err := w.Write([]byte{0x00, 0x3c, 0x00, 0xc0})
			return err
		}}
	entries := []gguf.Entry{{Key: "general.architecture", Value: "llama"}}
	if err := gguf.Write(context.Background(), &file, entries, []gguf.Tensor{row}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, %d bytes\n", file.Bytes()[:4], file.Len())
	// Output: GGUF, 160 bytes
}
