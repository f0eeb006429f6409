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

	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/go.safetensors (then run testdata/make_interop.py check on it)")

func tensor[T safetensors.Element](t testing.TB, name string, shape []int, values ...T) safetensors.Tensor {
	t.Helper()
	out, err := safetensors.New(name, shape, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// interop returns the tensors and the metadata of testdata/make_interop.py.
func interop(t testing.TB) ([]safetensors.Tensor, map[string]string) {
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7fc00000)
	return []safetensors.Tensor{
		tensor[float32](t, "f32", []int{2, 3}, 0.5, -1.25, inf, nan, float32(math.Copysign(0, -1)), 3e-45),
		tensor(t, "f64", []int{2}, math.Pi, -1e300),
		tensor[int32](t, "i32", []int{3}, math.MinInt32, math.MaxInt32, 7),
		tensor[uint32](t, "u32", []int{2}, 0, math.MaxUint32),
		tensor[int64](t, "i64", []int{2}, math.MinInt64, math.MaxInt64),
		tensor[uint8](t, "u8", []int{5, 1}, 0, 1, 2, 3, 4),
		{Name: "bf16", DType: safetensors.BF16, Shape: []int{2}, Data: []byte{0x80, 0x3f, 0x20, 0xc0}},
		tensor[int64](t, "scalar", []int{}, 42),
		tensor[float32](t, "empty", []int{0, 3}),
	}, map[string]string{"step": "100", "note": "λ_t = 0.5 \"quoted\""}
}

func write(t testing.TB, tensors []safetensors.Tensor, metadata map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := safetensors.Write(context.Background(), &buf, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func open(data []byte) (*safetensors.File, error) {
	return safetensors.NewFile(bytes.NewReader(data), int64(len(data)))
}

// byName sorts tensors for comparison.
func byName(tensors []safetensors.Tensor) []safetensors.Tensor {
	return slices.SortedFunc(slices.Values(tensors), func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
}

func TestReadsWhatPythonWrote(t *testing.T) {
	got, metadata, err := safetensors.ReadFile(vfs.At("testdata/python.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	want, wantMetadata := interop(t)
	if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
		t.Errorf("tensors differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMetadata, metadata); diff != "" {
		t.Errorf("metadata differ (-want +got):\n%s", diff)
	}
}

// TestWritesWhatPythonRead compares with a file that the Python package has read
// and found equal (testdata/make_interop.py check).
func TestWritesWhatPythonRead(t *testing.T) {
	const path = "testdata/go.safetensors"
	tensors, metadata := interop(t)
	if *update {
		if err := safetensors.WriteFile(context.Background(), vfs.At(path), tensors, metadata); err != nil {
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
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), tensors, metadata); err != nil {
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
	got, err := f.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byName(tensors), byName(got)); diff != "" {
		t.Errorf("tensors differ (-want +got):\n%s", diff)
	}
	gotMetadata := f.Metadata()
	delete(gotMetadata, safetensors.DigestKey)
	if !maps.Equal(gotMetadata, metadata) {
		t.Errorf("metadata %v, want %v", gotMetadata, metadata)
	}
	for i, info := range f.Tensors() {
		one, err := f.Tensor(info.Name)
		if err != nil || !bytes.Equal(one.Data, got[i].Data) {
			t.Errorf("tensor %q on its own: %v", info.Name, err)
		}
		if size := int64(info.DType.Size()); info.Begin%size != 0 {
			t.Errorf("tensor %q begins at %d, which is no multiple of its %d bytes", info.Name, info.Begin, size)
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
	if tensors, err := f.ReadAll(); len(tensors) != 0 || err != nil {
		t.Errorf("read %v, %v", tensors, err)
	}
	if verified, err := f.Verify(); !verified || err != nil {
		t.Errorf("verified %v, error %v", verified, err)
	}
}

// TestEveryBitIsProtected flips each bit of a file in turn: no damage may pass
// both the checks of the header and the digest.
func TestEveryBitIsProtected(t *testing.T) {
	data := write(t, []safetensors.Tensor{tensor[float32](t, "w", []int{2}, 1, 2), tensor[uint8](t, "b", nil, 3)}, map[string]string{"step": "7"})
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
	if _, err := f.ReadAll(); !errors.Is(err, safetensors.ErrChecksum) {
		t.Errorf("ReadAll: error %v, want ErrChecksum", err)
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
		"same name twice":  {[]safetensors.Tensor{ok, ok}, nil, `"w"`},
		"no name":          {[]safetensors.Tensor{{DType: safetensors.U8, Data: []byte{1}}}, nil, "name"},
		"reserved name":    {[]safetensors.Tensor{{Name: "__metadata__", DType: safetensors.U8, Data: []byte{1}}}, nil, "name"},
		"name not UTF-8":   {[]safetensors.Tensor{{Name: "\xff", DType: safetensors.U8, Data: []byte{1}}}, nil, "UTF-8"},
		"unknown type":     {[]safetensors.Tensor{{Name: "w", DType: "F4", Data: []byte{1}}}, nil, `"F4"`},
		"too few bytes":    {[]safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int{2}, Data: make([]byte, 4)}}, nil, "4 bytes"},
		"part of element":  {[]safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 5)}}, nil, "5 bytes"},
		"negative axis":    {[]safetensors.Tensor{{Name: "w", DType: safetensors.U8, Shape: []int{-1}}}, nil, "negative"},
		"too many axes":    {[]safetensors.Tensor{{Name: "w", DType: safetensors.U8, Shape: make([]int, 65)}}, nil, "axes"},
		"digest given":     {nil, map[string]string{safetensors.DigestKey: "x"}, safetensors.DigestKey},
		"metadata invalid": {nil, map[string]string{"k": "\xff"}, "UTF-8"},
		"zeros":            {nil, map[string]string{"k": strings.Repeat("0", 64)}, "zeros"},
	}
	for name, test := range tests {
		err := safetensors.Write(context.Background(), &bytes.Buffer{}, test.tensors, test.metadata)
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
	err := safetensors.WriteFile(ctx, vfs.At(path), []safetensors.Tensor{tensor[int32](t, "w", []int{1}, 2)}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	got, _, err := safetensors.ReadFile(vfs.At(path))
	if diff := cmp.Diff(old, got); diff != "" || err != nil {
		t.Errorf("error %v; the old file changed:\n%s", err, diff)
	}
}

func TestNewAndValues(t *testing.T) {
	if _, err := safetensors.New("w", []int{2, 2}, []float32{1, 2, 3}); err == nil || !strings.Contains(err.Error(), "want 4") {
		t.Errorf("three values for four elements: %v", err)
	}
	if _, err := safetensors.New("w", []int{1 << 40, 1 << 40}, []float32{1}); err == nil {
		t.Error("a shape of 2^80 elements is accepted")
	}
	x := tensor[float32](t, "w", []int{2}, 1, 2)
	if _, err := safetensors.Values[float64](x); err == nil || !strings.Contains(err.Error(), "F32, want F64") {
		t.Errorf("float32 read as float64: %v", err)
	}
	x.Data = x.Data[:7]
	if _, err := safetensors.Values[float32](x); err == nil {
		t.Error("seven bytes are read as two float32")
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
	if err := safetensors.WriteFile(context.Background(), vfs.At(path), []safetensors.Tensor{w}, map[string]string{"step": "100"}); err != nil {
		fmt.Println(err)
		return
	}
	tensors, metadata, err := safetensors.ReadFile(vfs.At(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := safetensors.Values[float32](tensors[0])
	fmt.Println(tensors[0].Name, tensors[0].Shape, values, metadata["step"], err)
	// Output: layer.weight [2 3] [1 2 3 4 5 6] 100 <nil>
}
