package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
)

// small returns a file with one entry of each kind and two tensors.
func small(t testing.TB) []byte {
	t.Helper()
	entries := []gguf.Entry{
		{Key: "u8", Value: uint8(1)}, {Key: "i8", Value: int8(-1)}, {Key: "u16", Value: uint16(2)},
		{Key: "i16", Value: int16(-2)},
		{Key: "u32", Value: uint32(3)}, {Key: "i32", Value: int32(-3)}, {Key: "u64", Value: uint64(4)},
		{Key: "i64", Value: int64(-4)},
		{Key: "f32", Value: float32(0.5)}, {Key: "f64", Value: 0.25}, {Key: "yes", Value: true},
		{Key: "text", Value: "naïve"},
		{Key: "texts", Value: []string{"a", ""}}, {Key: "ints", Value: []int32{-1, 5}},
		{Key: "uints", Value: []uint32{7}},
		{Key: "floats", Value: []float32{1, -2}}, {Key: "bools", Value: []bool{true, false}},
		{Key: "bytes", Value: []uint8{1, 2}},
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
	f, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
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

// TestTruncated checks that truncated files are refused.
func TestTruncated(t *testing.T) {
	data := small(t)
	for n := range len(data) - 12 { // the last 12 bytes are padding
		if _, err := gguf.NewFile(bytes.NewReader(data[:n]), int64(n)); !errors.Is(err, gguf.ErrFormat) {
			t.Fatalf("the first %d of %d bytes were read, error %v", n, len(data), err)
		}
	}
}

// TestVersion2 checks that version 2, which has the layout of version 3, is read.
func TestVersion2(t *testing.T) {
	data := small(t)
	data[4] = 2
	f, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
	if err != nil || f.Value("text") != "naïve" {
		t.Errorf("%v", err)
	}
}

// TestHostile changes a valid file in one place and checks the error.
func TestHostile(t *testing.T) {
	after := func(data []byte, text string) []byte {
		return data[bytes.Index(data, []byte(text))+len(text):]
	}
	for _, c := range []struct {
		name, says string
		change     func(data []byte)
	}{
		{"magic", "does not begin", func(d []byte) { d[0] = 'g' }},
		{"version 1", "version 1 ", func(d []byte) { d[4] = 1 }},
		{"big-endian", "little-endian", func(d []byte) { d[4], d[7] = 0, 3 }},
		{"tensors", "empty or used twice", func(d []byte) { d[15] = 255 }},
		{"entries", "bytes are left", func(d []byte) { d[23] = 127 }},
		{"long text", "bytes are left", func(d []byte) { after(d, "text")[11] = 127 }},
		{"long array", "bytes are left", func(d []byte) { after(d, "floats")[15] = 127 }},
		{"overflowing array", "bytes are left",
			func(d []byte) { copy(after(d, "floats")[8:], "\x00\x00\x00\x00\x00\x00\x00\x40") }},
		{"array of arrays", "value 9", func(d []byte) { after(d, "ints")[4] = 9 }},
		{"value type", "value 13", func(d []byte) { after(d, "ints")[0] = 13 }},
		{"name used twice", "used twice", func(d []byte) { copy(after(d, "u8")[5+8:], "u8") }},
		{"rank", "9 axes", func(d []byte) { info(d)[0] = 9 }},
		{"partial block", "want a multiple of 32", func(d []byte) { info(d)[4] = 63 }},
		{"large axis", "axis of more", func(d []byte) { info(d)[11] = 127 }},
		{"empty axis", "axis below 1", func(d []byte) { info(d)[12] = 0 }},
		{"far offset", "not complete", func(d []byte) { info(d)[31] = 127 }},
		{"odd offset", "multiple of 32 from 0 on", func(d []byte) { info(d)[24] = 1 }},
		{"overlap", "of 32 from 108 on",
			func(d []byte) { binary.LittleEndian.PutUint64(info(d)[24+8+9+4+8+4:], 0) }},
	} {
		data := small(t)
		c.change(data)
		_, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
		if !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", c.name, err, c.says)
		}
	}
}

// TestOtherTypes checks that the error about an unsupported type names it and its tensor.
func TestOtherTypes(t *testing.T) {
	for typ, name := range map[byte]string{14: "Q6_K", 99: "type 99"} {
		data := small(t)
		info(data)[20] = typ
		_, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
		if want := `tensor "a": ` + name + " is not supported, want F32"; err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// info returns the description of the first tensor of small, after its name: rank, two axes, type
// and offset.
func info(data []byte) []byte {
	name := []byte("\x01\x00\x00\x00\x00\x00\x00\x00a\x02\x00\x00\x00")
	return data[bytes.Index(data, name)+9:]
}

// FuzzReader checks that no input makes the reader panic, and that every tensor of an accepted file
// can be read.
func FuzzReader(f *testing.F) {
	f.Add(small(f))
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.NewFile(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, info := range file.Tensors {
			values, err := file.Values(info)
			n := 1
			for _, d := range info.Shape {
				n *= d
			}
			if err != nil || len(values) != n {
				t.Fatalf("tensor %q of shape %v has %d values, error %v", info.Name, info.Shape, len(values),
					err)
			}
		}
	})
}

// TestWriterRefuses checks that entries and tensors that make no valid file are refused.
func TestWriterRefuses(t *testing.T) {
	ok := gguf.Tensor{Name: "x", Type: gguf.F32, Shape: []int{1},
		Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4)); return err }}
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
		if err := gguf.Write(t.Context(), io.Discard, c.entries, c.tensors); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}
