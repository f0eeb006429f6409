package safetensors_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

var update = flag.Bool("update", false,
	"rewrite testdata/go.safetensors (then run testdata/make_interop.py check on it)")

func TestReadsWhatPythonWrote(t *testing.T) {
	got, metadata := content(t, "testdata/python.safetensors")
	want, wantMetadata := interop(t)
	if diff := cmp.Diff(load(t, want), got); diff != "" {
		t.Errorf("tensors differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMetadata, metadata); diff != "" {
		t.Errorf("metadata differ (-want +got):\n%s", diff)
	}
}

// TestWritesWhatPythonRead compares with a file that the Python package has read and found equal
// (testdata/make_interop.py check).
func TestWritesWhatPythonRead(t *testing.T) {
	const path = "testdata/go.safetensors"
	tensors, metadata := interop(t)
	if *update {
		if err := safetensors.WriteFile(context.Background(), vfs.At(path), tensors,
			metadata); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := write(t, tensors, metadata); !bytes.Equal(got, want) {
		t.Errorf("%d bytes written differ from the %d of %s", len(got), len(want), path)
	}
}

func TestRoundTrip(t *testing.T) {
	tensors, metadata := interop(t)
	path := filepath.Join(t.TempDir(), "file.safetensors")
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), tensors,
		metadata); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if verified, err := f.Verify(); !verified || err != nil {
		t.Errorf("verified %v, error %v", verified, err)
	}
	if diff := cmp.Diff(load(t, tensors), load(t, all(t, f))); diff != "" {
		t.Errorf("tensors differ (-want +got):\n%s", diff)
	}
	gotMetadata := f.Metadata()
	if !maps.Equal(gotMetadata, metadata) {
		t.Errorf("metadata %v, want %v", gotMetadata, metadata)
	}
	for _, info := range f.Tensors() {
		if size := int64(info.DType.Bits() / 8); info.Begin%size != 0 {
			t.Errorf("tensor %q begins at %d, which is no multiple of its %d bytes", info.Name, info.Begin,
				size)
		}
	}
	if _, err := f.Tensor("absent"); err == nil {
		t.Error("an absent tensor is read")
	}
}

func TestBytesDependOnContentOnly(t *testing.T) {
	tensors, metadata := interop(t)
	want := write(t, tensors, metadata)
	slices.Reverse(tensors)
	if got := write(t, tensors, metadata); !bytes.Equal(got, want) {
		t.Error("the order in which tensors are given shows in the file")
	}
}

func TestNothingAtAll(t *testing.T) {
	f, err := open(write(t, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors()) != 0 {
		t.Errorf("read %v", f.Tensors())
	}
	if verified, err := f.Verify(); !verified || err != nil {
		t.Errorf("verified %v, error %v", verified, err)
	}
}

// TestEveryBitIsProtected checks that a flip of any bit is detected by the checks of the header or
// by a digest.
func TestEveryBitIsProtected(t *testing.T) {
	data := write(t, []safetensors.Tensor{tensor[float32](t, "w", []int{2}, 1, 2),
		tensor[uint8](t, "b", nil, 3)}, map[string]string{"step": "7"})
	everyBitIsProtected(t, data)
}

func everyBitIsProtected(t *testing.T, data []byte) {
	t.Helper()
	for i := range data {
		for bit := range 8 {
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << bit
			f, err := open(damaged)
			if err != nil {
				continue
			}
			if verified, err := f.Verify(); verified && err == nil {
				t.Fatalf("bit %d of byte %d (%q) can flip unnoticed", bit, i, data[i])
			}
		}
	}
	for n := range data {
		if f, err := open(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read as a file of %v", n, len(data), f.Tensors())
		}
	}
}

func TestChecksumError(t *testing.T) {
	data := write(t, []safetensors.Tensor{tensor[float32](t, "w", []int{2}, 1, 2)}, nil)
	data[len(data)-1] ^= 1
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Tensor("w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Bytes(); !errors.Is(err, safetensors.ErrChecksum) ||
		!strings.Contains(err.Error(), `tensor "w"`) {
		t.Errorf("Bytes: error %v, want ErrChecksum", err)
	}
	if _, err := safetensors.Values[float32](w); !errors.Is(err, safetensors.ErrChecksum) {
		t.Errorf("Values: error %v, want ErrChecksum", err)
	}
	if _, err := f.Verify(); !errors.Is(err, safetensors.ErrChecksum) {
		t.Errorf("Verify: error %v, want ErrChecksum", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	ok := tensor[float32](t, "w", []int{1}, 1)
	tests := map[string]struct {
		tensors  []safetensors.Tensor
		metadata map[string]string
		say      string
	}{
		"same name twice": {[]safetensors.Tensor{ok, ok}, nil, `"w"`},
		"no name":         {[]safetensors.Tensor{raw("", safetensors.U8, nil, 1)}, nil, "name"},
		"reserved name": {[]safetensors.Tensor{raw("__metadata__", safetensors.U8, nil, 1)}, nil,
			"name"},
		"name not UTF-8": {[]safetensors.Tensor{raw("\xff", safetensors.U8, nil, 1)}, nil, "UTF-8"},
		"unknown type":   {[]safetensors.Tensor{raw("w", "F3", nil, 1)}, nil, `"F3"`},
		"half a byte": {[]safetensors.Tensor{raw("w", "F4", []int{3}, 1, 2)}, nil,
			"3 elements of 4 bits"},
		"too few bytes": {
			[]safetensors.Tensor{raw("w", safetensors.F32, []int{2}, make([]byte, 4)...)}, nil, "4 bytes"},
		"part of element": {
			[]safetensors.Tensor{raw("w", safetensors.F32, []int{1}, make([]byte, 5)...)}, nil, "5 bytes"},
		"negative axis": {[]safetensors.Tensor{raw("w", safetensors.U8, []int{-1})}, nil, "negative"},
		"too many axes": {[]safetensors.Tensor{raw("w", safetensors.U8, make([]int, 65))}, nil,
			"axes"},
		"header digest": {nil, map[string]string{safetensors.HeaderDigestKey: "x"},
			safetensors.HeaderDigestKey},
		"tensor digests": {nil, map[string]string{safetensors.TensorDigestsKey: "x"},
			safetensors.TensorDigestsKey},
		"metadata invalid": {nil, map[string]string{"k": "\xff"}, "UTF-8"},
		"size overflows": {[]safetensors.Tensor{raw("w", safetensors.F64, []int{1 << 61})}, nil,
			"too many elements"},
	}
	for name, test := range tests {
		err := safetensors.Write(context.Background(), &memory{}, test.tensors, test.metadata)
		if err == nil || !strings.Contains(err.Error(), test.say) {
			t.Errorf("%s: error %v, want one that says %q", name, err, test.say)
		}
	}
}

func TestCancelledWriteLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.safetensors")
	old := []safetensors.Tensor{tensor[int32](t, "w", []int{1}, 1)}
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), old, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := safetensors.WriteFile(ctx, vfs.At(path),
		[]safetensors.Tensor{tensor[int32](t, "w", []int{1}, 2)}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	got, _ := content(t, path)
	if diff := cmp.Diff(load(t, old), got); diff != "" {
		t.Errorf("the old file changed:\n%s", diff)
	}
}

func TestNewAndValues(t *testing.T) {
	if _, err := safetensors.New("w", []int{2, 2}, []float32{1, 2, 3}); err == nil ||
		!strings.Contains(err.Error(), "want 4") {
		t.Errorf("three values for four elements: %v", err)
	}
	if _, err := safetensors.New("w", []int{1 << 40, 1 << 40}, []float32{1}); err == nil {
		t.Error("a shape of 2^80 elements is accepted")
	}
	x := tensor[float32](t, "w", []int{2}, 1, 2)
	if _, err := safetensors.Values[float64](x); err == nil ||
		!strings.Contains(err.Error(), "F32, want F64") {
		t.Errorf("float32 read as float64: %v", err)
	}
	for n := range 16 {
		x = raw("w", safetensors.F32, []int{2}, make([]byte, n)...)
		if _, err := safetensors.Values[float32](x); (err == nil) != (n == 8) {
			t.Errorf("%d bytes read as two float32: %v", n, err)
		}
	}
	signalling := []uint32{0x7f800001, 0xff800001, 0x7fc00000, 0x80000000, 1}
	floats := make([]float32, len(signalling))
	for i, b := range signalling {
		floats[i] = math.Float32frombits(b)
	}
	back, err := safetensors.Values[float32](tensor(t, "w", []int{len(floats)}, floats...))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range back {
		if got := math.Float32bits(x); got != signalling[i] {
			t.Errorf("bits %#x became %#x", signalling[i], got)
		}
	}
	roundTrip[int8](t, -128, 127)
	roundTrip[uint16](t, 0, math.MaxUint16)
	roundTrip[int16](t, math.MinInt16, math.MaxInt16)
	roundTrip[uint64](t, 0, math.MaxUint64)
}

func roundTrip[T safetensors.Element](t *testing.T, values ...T) {
	t.Helper()
	x := tensor(t, "w", []int{len(values)}, values...)
	got, err := safetensors.Values[T](x)
	if err != nil || !slices.Equal(got, values) {
		t.Errorf("%s: %v became %v, %v", x.DType, values, got, err)
	}
}

func Example() {
	w, err := safetensors.New("layer.weight", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "safetensors")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), []safetensors.Tensor{w},
		map[string]string{"step": "100"}); err != nil {
		fmt.Println(err)
		return
	}
	f, err := safetensors.Open(vfs.At(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	again, err := f.Tensor("layer.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := safetensors.Values[float32](again)
	fmt.Println(again.Name, again.Shape, values, f.Metadata()["step"], err)
	// Output: layer.weight [2 3] [1 2 3 4 5 6] 100 <nil>
}
