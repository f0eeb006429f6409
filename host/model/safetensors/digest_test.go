package safetensors_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/testing/racing"
)

// three returns a file of three tensors with one byte of data each.
func three(t testing.TB) []byte {
	return write(t, []safetensors.Tensor{tensor[uint8](t, "a", nil, 1), tensor[uint8](t, "b", nil, 2),
		tensor[uint8](t, "c", nil, 3)}, nil)
}

// TestDamagedTensorsAreNamed checks that damaged tensors are named and the others can be read.
func TestDamagedTensorsAreNamed(t *testing.T) {
	data := three(t)
	data[len(data)-1] ^= 1
	data[len(data)-3] ^= 1
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Verify(); !errors.Is(err, safetensors.ErrChecksum) ||
		!strings.HasSuffix(err.Error(), `in 2 of 3 tensors: "a", "c"`) {
		t.Errorf("verify: %v", err)
	}
	for i, x := range all(t, f) {
		_, err := x.Bytes()
		if damaged := i != 1; damaged != errors.Is(err, safetensors.ErrChecksum) ||
			damaged != (err != nil) {
			t.Errorf("tensor %s: %v", x.Name, err)
		}
	}
}

// TestDamageAfterOpen checks that a tensor is compared with its digest each time it is read.
func TestDamageAfterOpen(t *testing.T) {
	data := three(t)
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	last := slices.MaxFunc(f.Tensors(), func(a, b safetensors.Info) int { return int(a.End - b.End) })
	x, err := f.Tensor(last.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Bytes(); err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if _, err := x.Bytes(); !errors.Is(err, safetensors.ErrChecksum) ||
		!strings.Contains(err.Error(), last.Name) {
		t.Error(err)
	}
}

// TestMemoryIsFlat checks that neither writing nor verifying needs memory for the data.
func TestMemoryIsFlat(t *testing.T) {
	if racing.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	const count, size = 64, 1 << 20
	values := make([]float32, size/4)
	var tensors []safetensors.Tensor
	for i := range count {
		tensors = append(tensors, tensor(t, string(rune('a'+i)), []int{len(values)}, values...))
	}
	file := make(memory, count*size+1<<16)
	allocates := func(name string, act func() error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := act(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > count*size/8 {
			t.Errorf("%s %d bytes takes %d of memory", name, count*size, n)
		}
	}
	var end int64
	allocates("writing", func() error {
		return safetensors.Write(context.Background(),
			writerAt(func(p []byte, offset int64) (int, error) {
				end = max(end, offset+int64(len(p)))
				return file.WriteAt(p, offset)
			}), tensors, nil)
	})
	f, err := open(file[:end])
	if err != nil {
		t.Fatal(err)
	}
	allocates("verifying", func() error {
		_, err := f.Verify()
		return err
	})
}

type writerAt func(p []byte, offset int64) (int, error)

func (f writerAt) WriteAt(p []byte, offset int64) (int, error) { return f(p, offset) }

// TestSizeOfData checks that a tensor must write as many bytes as its shape requires.
func TestSizeOfData(t *testing.T) {
	for n := range 12 {
		var file memory
		err := safetensors.Write(context.Background(), &file,
			[]safetensors.Tensor{raw("w", safetensors.F32, []int{2}, make([]byte, n)...)}, nil)
		if (err == nil) != (n == 8) {
			t.Errorf("%d bytes for 8: %v", n, err)
		}
	}
	broken := errors.New("broken")
	lazy := safetensors.Lazy("w", nil, func() ([]float32, error) { return nil, broken })
	if err := safetensors.Write(context.Background(), &memory{}, []safetensors.Tensor{lazy},
		nil); !errors.Is(err, broken) {
		t.Errorf("data that cannot be had: %v", err)
	}
}

// TestZerosInMetadata checks that text that looks like the placeholder of a digest is kept.
func TestZerosInMetadata(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	data := write(t, []safetensors.Tensor{tensor[uint8](t, zeros, nil, 1)},
		map[string]string{"k": zeros})
	f, err := open(bytes.Clone(data))
	if err != nil {
		t.Fatal(err)
	}
	if verified, err := f.Verify(); !verified || err != nil || f.Metadata()["k"] != zeros {
		t.Errorf("%v %v %v", verified, err, f.Metadata())
	}
}
