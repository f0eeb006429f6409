package safetensors_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

type stored struct {
	Name  string
	DType safetensors.DType
	Shape []int
	Data  []byte
}

// load reads the data of tensors, and sorts them by name.
func load(t testing.TB, tensors []safetensors.Tensor) []stored {
	t.Helper()
	var list []stored
	for _, x := range tensors {
		data, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, stored{x.Name, x.DType, x.Shape, data})
	}
	slices.SortFunc(list, func(a, b stored) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func raw(name string, dtype safetensors.DType, shape []int, data ...byte) safetensors.Tensor {
	return safetensors.Tensor{Name: name, DType: dtype, Shape: shape, Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// all returns the tensors of a file, in the order of their data.
func all(t testing.TB, f *safetensors.File) []safetensors.Tensor {
	t.Helper()
	var list []safetensors.Tensor
	for _, info := range f.Tensors() {
		x, err := f.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	return list
}

func content(t testing.TB, path string) ([]stored, map[string]string) {
	t.Helper()
	f, err := safetensors.Open(vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return load(t, all(t, f)), f.Metadata()
}

func tensor[T safetensors.Element](
	t testing.TB, name string, shape []int, values ...T,
) safetensors.Tensor {
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
		tensor[float32](t, "f32", []int{2, 3}, 0.5, -1.25, inf, nan, float32(math.Copysign(0, -1)),
			3e-45),
		tensor(t, "f64", []int{2}, math.Pi, -1e300),
		tensor[int32](t, "i32", []int{3}, math.MinInt32, math.MaxInt32, 7),
		tensor[uint32](t, "u32", []int{2}, 0, math.MaxUint32),
		tensor[int64](t, "i64", []int{2}, math.MinInt64, math.MaxInt64),
		tensor[uint8](t, "u8", []int{5, 1}, 0, 1, 2, 3, 4),
		raw("bf16", safetensors.BF16, []int{2}, 0x80, 0x3f, 0x20, 0xc0),
		tensor[int64](t, "scalar", []int{}, 42),
		tensor[float32](t, "empty", []int{0, 3}),
	}, map[string]string{"step": "100", "note": "λ_t = 0.5 \"quoted\""}
}

func write(t testing.TB, tensors []safetensors.Tensor, metadata map[string]string) []byte {
	t.Helper()
	var file memory
	if err := safetensors.Write(context.Background(), &file, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	return file
}

type memory []byte

func (m *memory) WriteAt(p []byte, offset int64) (int, error) {
	if missing := int(offset) + len(p) - len(*m); missing > 0 {
		*m = append(*m, make([]byte, missing)...)
	}
	return copy((*m)[offset:], p), nil
}

func open(data []byte) (*safetensors.File, error) {
	return safetensors.NewFile(bytes.NewReader(data), int64(len(data)), "safetensors")
}
