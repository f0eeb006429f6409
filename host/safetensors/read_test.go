package safetensors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// raw puts a file together from the text of a header and a number of bytes of data.
func raw(header string, dataSize int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	out = append(out, header...)
	return append(out, make([]byte, dataSize)...)
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		data []byte
		say  string
	}{
		"nothing":                {nil, "too few"},
		"seven bytes":            {make([]byte, 7), "too few"},
		"no header":              {make([]byte, 8), "does not start with {"},
		"header beyond the file": {binary.LittleEndian.AppendUint64(nil, 3), "header of 3 bytes in a file of 8"},
		"header of 2^64-1 bytes": {bytes.Repeat([]byte{0xff}, 64), "header of 18446744073709551615 bytes"},
		"header over the limit":  {binary.LittleEndian.AppendUint64(nil, 100_000_001), "at most 100000000"},
		"space first":            {raw(` {}`, 0), "does not start with {"},
		"list":                   {raw(`[]`, 0), "does not start with {"},
		"cut JSON":               {raw(`{"w":`, 0), "header"},
		"text after the object":  {raw(`{}{}`, 0), "header"},
		"zero byte padding":      {raw("{}\x00", 0), "header"},
		"name twice":             {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate"},
		"same name in disguise":  {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "duplicate"},
		"dtype twice":            {raw(`{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate"},
		"metadata twice":         {raw(`{"__metadata__":{},"__metadata__":{}}`, 0), "duplicate"},
		"metadata key twice":     {raw(`{"__metadata__":{"a":"1","a":"2"}}`, 0), "duplicate"},
		"metadata not text":      {raw(`{"__metadata__":{"a":1}}`, 0), "metadata"},
		"digest not hexadecimal": {raw(`{"__metadata__":{"content_sha256":"x"}}`, 0), "hexadecimal"},
		"no name":                {raw(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "has no name"},
		"name not UTF-8":         {raw("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "UTF-8"},
		"unknown type":           {raw(`{"w":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}`, 1), `"F4"`},
		"lower case type":        {raw(`{"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}`, 4), `"f32"`},
		"no shape":               {raw(`{"w":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "no shape"},
		"null shape":             {raw(`{"w":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1), "no shape"},
		"negative axis":          {raw(`{"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), "negative"},
		"two negative axes":      {raw(`{"w":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`, 1), "negative"},
		"fraction":               {raw(`{"w":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), "shape"},
		"axis beyond int":        {raw(`{"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1), "shape"},
		"count that overflows":   {raw(`{"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "too many"},
		"size that overflows":    {raw(`{"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0), "want 2305843009213693952"},
		"65 axes":                {raw(`{"w":{"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]}}`, 1), "axes"},
		"no offsets":             {raw(`{"w":{"dtype":"U8","shape":[1]}}`, 1), "0 data offsets"},
		"one offset":             {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), "1 data offsets"},
		"three offsets":          {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), "3 data offsets"},
		"offsets reversed":       {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), "[1, 0] outside"},
		"end beyond the data":    {raw(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1), "outside the 1 bytes"},
		"end beyond everything":  {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}}`, 1), "outside"},
		"negative offset":        {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1), "data_offsets"},
		"too few bytes":          {raw(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "4 bytes of data"},
		"part of an element":     {raw(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}}`, 5), "5 bytes of data"},
		"unknown member":         {raw(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1), "unknown"},
		"overlap":                {raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `"b" overlaps`},
		"same bytes twice":       {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `"b" overlaps`},
		"gap":                    {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), `gap of 1 bytes before tensor "b"`},
		"gap at the start":       {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "gap of 1"},
		"bytes left over":        {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 3), "2 bytes of data belong to no tensor"},
		"data without tensors":   {raw(`{}`, 1), "1 bytes of data belong to no tensor"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := open(test.data)
			if !errors.Is(err, safetensors.ErrFormat) {
				t.Fatalf("error %v, want ErrFormat", err)
			}
			if !strings.Contains(err.Error(), test.say) {
				t.Errorf("error %q does not say %q", err, test.say)
			}
		})
	}
}

func TestReaderAccepts(t *testing.T) {
	// The format does not ask for alignment; data is copied to where it is.
	tests := map[string][]byte{
		"no padding, odd offset": raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}}`, 9),
		"padding":                raw(`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}   `, 1),
		"empty tensors":          raw(`{"a":{"dtype":"U8","shape":[0,9],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}}`, 1),
		"huge empty tensor":      raw(`{"a":{"dtype":"U8","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`, 0),
		"no tensors":             raw(`{}`, 0),
	}
	for name, data := range tests {
		f, err := open(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := f.ReadAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if verified, err := f.Verify(); verified || err != nil {
			t.Errorf("%s: verified %v without a digest, %v", name, verified, err)
		}
	}
}

// shortReader pretends that a file lost its end after it was opened.
type shortReader struct {
	*bytes.Reader
	end int64
}

func (r *shortReader) ReadAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > r.end {
		p = p[:max(0, r.end-offset)]
		n, _ := r.Reader.ReadAt(p, offset)
		return n, nil
	}
	return r.Reader.ReadAt(p, offset)
}

func TestFileThatBecomesShorter(t *testing.T) {
	data := write(t, []safetensors.Tensor{tensor[float32](t, "w", []int{2}, 1, 2)}, nil)
	r := &shortReader{bytes.NewReader(data), int64(len(data))}
	f, err := safetensors.NewFile(r, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	r.end -= 3
	if _, err := f.ReadAll(); !errors.Is(err, safetensors.ErrFormat) {
		t.Errorf("error %v, want ErrFormat", err)
	}
}

func TestOpenErrors(t *testing.T) {
	path := t.TempDir() + "/file.safetensors"
	if _, err := safetensors.Open(vfs.At(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := safetensors.ReadFile(vfs.At(path)); !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrFormat with the path", err)
	}
}

// FuzzReader feeds arbitrary bytes: nothing may panic, and whatever is accepted
// must come back the same after it is written.
func FuzzReader(f *testing.F) {
	tensors, metadata := interop(f)
	f.Add(write(f, tensors, metadata))
	python, err := os.ReadFile("testdata/python.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(python)
	f.Add(raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	f.Add(raw(`{"__metadata__":{"a":"b"}}  `, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := open(data)
		if err != nil {
			if !errors.Is(err, safetensors.ErrFormat) {
				t.Fatalf("error %v is not ErrFormat", err)
			}
			return
		}
		tensors, err := file.ReadAll()
		if err != nil {
			return
		}
		metadata := file.Metadata()
		delete(metadata, safetensors.DigestKey)
		var buf bytes.Buffer
		if err := safetensors.Write(context.Background(), &buf, tensors, metadata); err != nil {
			if strings.Contains(err.Error(), "zeros in a row") {
				return
			}
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := open(buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		back, err := again.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(byName(tensors), byName(back)); diff != "" {
			t.Fatalf("tensors changed:\n%s", diff)
		}
		backMetadata := again.Metadata()
		delete(backMetadata, safetensors.DigestKey)
		if len(metadata) > 0 && !maps.Equal(metadata, backMetadata) {
			t.Fatalf("metadata changed from %v to %v", metadata, backMetadata)
		}
	})
}

func benchmarkTensors(b *testing.B) []safetensors.Tensor {
	b.SetBytes(64 << 20)
	return []safetensors.Tensor{tensor(b, "w", []int{16 << 20}, make([]float32, 16<<20)...)}
}

func BenchmarkWriteFile(b *testing.B) {
	tensors := benchmarkTensors(b)
	path := b.TempDir() + "/file.safetensors"
	for b.Loop() {
		if err := safetensors.WriteFile(context.Background(), vfs.At(path), tensors, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadFile(b *testing.B) {
	path := b.TempDir() + "/file.safetensors"
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), benchmarkTensors(b), nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := safetensors.ReadFile(vfs.At(path)); err != nil {
			b.Fatal(err)
		}
	}
}
