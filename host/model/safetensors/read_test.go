package safetensors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// file returns a file with the given text of the header and a number of bytes of data.
func file(header string, dataSize int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	out = append(out, header...)
	return append(out, make([]byte, dataSize)...)
}

var digest = strings.Repeat("a1", 32)

// digested returns a header with the given digests of tensors and descriptions of tensors.
func digested(digests, tensors string) string {
	text := `{"__metadata__":{"header_sha256":"` + digest + `","tensor_sha256":` +
		strconv.Quote("{"+digests+"}") + `}`
	if tensors != "" {
		text += "," + tensors
	}
	return text + "}"
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		data []byte
		say  string
	}{
		"nothing":     {nil, "too few"},
		"seven bytes": {make([]byte, 7), "too few"},
		"no header":   {make([]byte, 8), "does not start with {"},
		"header beyond the file": {binary.LittleEndian.AppendUint64(nil, 3),
			"header of 3 bytes in a file of 8"},
		"header of 2^64-1 bytes": {bytes.Repeat([]byte{0xff}, 64),
			"header of 18446744073709551615 bytes"},
		"header over the limit": {binary.LittleEndian.AppendUint64(nil, 100_000_001),
			"at most 100000000"},
		"space first":           {file(` {}`, 0), "does not start with {"},
		"list":                  {file(`[]`, 0), "does not start with {"},
		"cut JSON":              {file(`{"w":`, 0), "header"},
		"text after the object": {file(`{}{}`, 0), "header"},
		"zero byte padding":     {file("{}\x00", 0), "header"},
		"name twice": {
			file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate key"},
		"same name in disguise": {
			file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "duplicate key"},
		"dtype twice": {
			file(`{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate key"},
		"metadata twice":     {file(`{"__metadata__":{},"__metadata__":{}}`, 0), "duplicate key"},
		"metadata key twice": {file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), "duplicate key"},
		"metadata not text":  {file(`{"__metadata__":{"a":1}}`, 0), "metadata"},
		"digest not hexadecimal": {file(`{"__metadata__":{"header_sha256":"x","tensor_sha256":"{}"}}`, 0),
			"hexadecimal"},
		"tensor's not either": {file(digested(`"w":"x"`, ""), 0),
			"has 1 digests, but the file has 0 tensors"},
		"header's digest alone": {file(`{"__metadata__":{"header_sha256":"`+digest+`"}}`, 0),
			"tensor_sha256"},
		"tensors' digests alone": {file(`{"__metadata__":{"tensor_sha256":"{}"}}`, 0), "header_sha256"},
		"digests that are none": {
			file(`{"__metadata__":{"header_sha256":"`+digest+`","tensor_sha256":"[]"}}`, 0),
			"tensor_sha256"},
		"tensor without digest": {
			file(digested("", `"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`), 1),
			`lacks tensor "w"`},
		"digest without tensor": {file(digested(`"w":"`+digest+`"`, ""), 0),
			"has 1 digests, but the file has 0 tensors"},
		"no name": {file(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			"has no name"},
		"name not UTF-8": {
			file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "UTF-8"},
		"unknown type": {file(`{"w":{"dtype":"F3","shape":[1],"data_offsets":[0,1]}}`, 1),
			`"F3"`},
		"half a byte": {file(`{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2),
			"3 elements of 4 bits do not fill whole bytes"},
		"part of a byte": {file(`{"w":{"dtype":"F6_E2M3","shape":[2],"data_offsets":[0,1]}}`, 1),
			"2 elements of 6 bits"},
		"a byte for each F4": {file(`{"w":{"dtype":"F4","shape":[2],"data_offsets":[0,2]}}`, 2),
			"want 1"},
		"lower case type": {file(`{"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}`, 4),
			`"f32"`},
		"no shape": {file(`{"w":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "no shape"},
		"null shape": {file(`{"w":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1),
			"no shape"},
		"negative axis": {file(`{"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1),
			"negative"},
		"two negative axes": {file(`{"w":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`, 1),
			"negative"},
		"fraction": {file(`{"w":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1),
			"shape"},
		"axis beyond int": {
			file(`{"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1), "shape"},
		"count that overflows": {
			file(`{"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0),
			"too many"},
		"size that overflows": {
			file(`{"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0),
			"too many elements of 64 bits"},
		"65 axes": {
			file(`{"w":{"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]}}`, 1),
			"axes"},
		"no offsets": {file(`{"w":{"dtype":"U8","shape":[1]}}`, 1), "0 data offsets"},
		"one offset": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1),
			"1 data offsets"},
		"three offsets": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1),
			"3 data offsets"},
		"offsets reversed": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1),
			"[1, 0] outside"},
		"end beyond the data": {file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1),
			"outside the 1 bytes"},
		"end beyond everything": {
			file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}}`, 1), "outside"},
		"negative offset": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1),
			"data_offsets"},
		"too few bytes": {file(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4),
			"4 bytes of data"},
		"part of an element": {file(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}}`, 5),
			"5 bytes of data"},
		"unknown member": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1),
			"unknown"},
		"overlap": {
			file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `"b" overlaps`},
		"same bytes twice": {
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `"b" overlaps`},
		"gap": {
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), `gap of 1 bytes before tensor "b"`},
		"gap at the start": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
			"gap of 1"},
		"bytes left over": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 3),
			"2 bytes of data belong to no tensor"},
		"data without tensors": {file(`{}`, 1), "1 bytes of data belong to no tensor"},
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
	// The format does not require alignment, and the reader copies the data.
	tests := map[string][]byte{
		"no padding, odd offset": file(
			`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}}`, 9),
		"padding": file(`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}   `, 1),
		"empty tensors": file(
			`{"a":{"dtype":"U8","shape":[0,9],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}}`, 1),
		"huge empty tensor": file(
			`{"a":{"dtype":"U8","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`, 0),
		"no tensors": file(`{}`, 0),
		"packed elements": file(
			`{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},"b":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[3,6]},"c":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[6,7]},"d":{"dtype":"C64","shape":[1],"data_offsets":[7,15]}}`, 15),
	}
	for name, data := range tests {
		f, err := open(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		load(t, all(t, f))
		if verified, err := f.Verify(); verified || err != nil {
			t.Errorf("%s: verified %v without a digest, %v", name, verified, err)
		}
	}
}

// shortReader simulates a file that is truncated after it was opened.
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
	f, err := safetensors.NewFile(r, int64(len(data)), "safetensors")
	if err != nil {
		t.Fatal(err)
	}
	r.end -= 3
	if _, err := all(t, f)[0].Bytes(); !errors.Is(err, safetensors.ErrFormat) {
		t.Errorf("error %v, want ErrFormat", err)
	}
	if _, err := f.Verify(); !errors.Is(err, safetensors.ErrFormat) {
		t.Errorf("verify: error %v, want ErrFormat", err)
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
	if _, err := safetensors.Open(vfs.At(path)); !errors.Is(err, safetensors.ErrFormat) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrFormat with the path", err)
	}
}

// FuzzReader checks that no bytes cause a panic, and that an accepted file is the same after it is
// written again.
func FuzzReader(f *testing.F) {
	tensors, metadata := interop(f)
	f.Add(write(f, tensors, metadata))
	seed, err := os.ReadFile("testdata/python.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	f.Add(file(`{"__metadata__":{"a":"b"}}  `, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		f, err := open(data)
		if err != nil {
			if !errors.Is(err, safetensors.ErrFormat) && !errors.Is(err, safetensors.ErrChecksum) {
				t.Fatalf("error %v is neither ErrFormat nor ErrChecksum", err)
			}
			return
		}
		if _, err := f.Verify(); err != nil {
			return
		}
		tensors, metadata := all(t, f), f.Metadata()
		again, err := open(write(t, tensors, metadata))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(load(t, tensors), load(t, all(t, again))); diff != "" {
			t.Fatalf("tensors changed:\n%s", diff)
		}
		if back := again.Metadata(); len(metadata) > 0 && !maps.Equal(metadata, back) {
			t.Fatalf("metadata changed from %v to %v", metadata, back)
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
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), benchmarkTensors(b),
		nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := safetensors.Open(vfs.At(path)); err != nil {
			b.Fatal(err)
		}
	}
}

// large writes a sparse file of the given size that begins with some bytes.
func large(t *testing.T, path string, start []byte, size int64) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, start, 0o644), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
}

// TestLimits checks that headers and indices above the limits are refused before they are decoded.
func TestLimits(t *testing.T) {
	testlevel.Long(t, "a header of 100 MB")
	const limit = 100_000_000
	dir := t.TempDir()
	single := filepath.Join(dir, safetensors.SingleName)
	for _, over := range []int64{0, 1} {
		large(t, single, binary.LittleEndian.AppendUint64(nil, uint64(limit+over)), 2*limit)
		_, err := safetensors.Open(vfs.At(single))
		if !errors.Is(err, safetensors.ErrFormat) ||
			strings.Contains(err.Error(), "at most 100000000") != (over > 0) {
			t.Errorf("a header of %d bytes: %v", limit+over, err)
		}
	}
	if err := os.Remove(single); err != nil {
		t.Fatal(err)
	}
	for _, over := range []int64{0, 1} {
		large(t, filepath.Join(dir, safetensors.IndexName), nil, limit/2+over)
		_, err := safetensors.OpenShards(vfs.At(dir))
		if errors.Is(err, safetensors.ErrFormat) != (over == 0) ||
			errors.Is(err, vfs.ErrTooLarge) != (over > 0) {
			t.Errorf("an index of %d bytes: %v", limit/2+over, err)
		}
	}
}
