package gguf_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/testing/testgguf"
	"github.com/cage-qat/cage/internal/vfs"
)

// small is a file with one entry of each kind and two tensors.
func small(t testing.TB) []byte {
	t.Helper()
	entries := []gguf.Entry{
		{Key: "u8", Value: uint8(1)}, {Key: "i8", Value: int8(-1)}, {Key: "u16", Value: uint16(2)}, {Key: "i16", Value: int16(-2)},
		{Key: "u32", Value: uint32(3)}, {Key: "i32", Value: int32(-3)}, {Key: "u64", Value: uint64(4)}, {Key: "i64", Value: int64(-4)},
		{Key: "f32", Value: float32(0.5)}, {Key: "f64", Value: 0.25}, {Key: "yes", Value: true}, {Key: "text", Value: "naïve"},
		{Key: "texts", Value: []string{"a", ""}}, {Key: "ints", Value: []int32{-1, 5}}, {Key: "uints", Value: []uint32{7}},
		{Key: "floats", Value: []float32{1, -2}}, {Key: "bools", Value: []bool{true, false}}, {Key: "bytes", Value: []uint8{1, 2}},
	}
	data := func(n int) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := w.Write(make([]byte, n))
			return err
		}
	}
	tensors := []gguf.Tensor{
		{Name: "a", Type: gguf.Q4_0, Shape: []int{3, 64}, Write: data(3 * 2 * 18)},
		{Name: "b", Type: gguf.F32, Shape: []int{5}, Write: data(20)},
	}
	var out bytes.Buffer
	if err := gguf.Write(t.Context(), &out, entries, tensors); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEveryKindOfEntry(t *testing.T) {
	data := small(t)
	f := testgguf.Parse(t, data)
	if !bytes.Equal(rewritten(t, f), data) {
		t.Error("read and written again the file is another one")
	}
	if f.Value("text") != "naïve" || f.Value("i64") != int64(-4) || f.Value("none") != nil {
		t.Errorf("entries are %v", f.Entries)
	}
	if got := f.Tensors[0].Shape; got[0] != 3 || got[1] != 64 {
		t.Errorf("the shape is %v, want [3 64]", got)
	}
}

// TestReadBack: a file is read back as it was written, and not if it is truncated, continued, or changed in its header.
func TestReadBack(t *testing.T) {
	tensor := gguf.Tensor{Name: "x", Type: gguf.F16, Shape: []int{1, 2}, Write: func(w io.Writer) error {
		_, err := w.Write([]byte{0x00, 0x3c, 0x00, 0xc0})
		return err
	}}
	entries, tensors := []gguf.Entry{{Key: "k", Value: "v"}}, []gguf.Tensor{tensor}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := gguf.WriteFile(t.Context(), vfs.At(path), entries, tensors); err != nil {
		t.Fatal(err)
	}
	read := func() (got []float32, err error) {
		err = gguf.ReadFile(vfs.At(path), entries, tensors, func(name string, values []float32) error {
			got = append(got, values...)
			return nil
		})
		return got, err
	}
	if got, err := read(); err != nil || !slices.Equal(got, []float32{1, -2}) {
		t.Fatalf("got %v, %v", got, err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(good, []byte("GGUF"), []byte("GGUf"), 1)
	for i, bad := range [][]byte{nil, good[:10], good[:len(good)-1], append(slices.Clone(good), 0), changed} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); err == nil {
			t.Errorf("change %d was not noticed", i)
		}
	}
}

// TestWriterRefuses what makes no valid file.
func TestWriterRefuses(t *testing.T) {
	ok := gguf.Tensor{Name: "x", Type: gguf.F32, Shape: []int{1}, Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4)); return err }}
	short := ok
	short.Shape = []int{2}
	odd := ok
	odd.Type = gguf.MXFP4
	for says, c := range map[string]struct {
		entries []gguf.Entry
		tensors []gguf.Tensor
	}{
		"used twice":            {tensors: []gguf.Tensor{ok, ok}},
		"4 bytes for the shape": {tensors: []gguf.Tensor{short}},
		"want a multiple of 32": {tensors: []gguf.Tensor{odd}},
		"type int":              {entries: []gguf.Entry{{Key: "k", Value: 1}}},
		"type []interface":      {entries: []gguf.Entry{{Key: "k", Value: []any{true, "x"}}}},
	} {
		if err := gguf.Write(t.Context(), io.Discard, c.entries, c.tensors); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}
