package export_test

import (
	"bytes"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/vfs"
)

// fromGGUF gives the values of a golden file with scales that are found in the values.
func fromGGUF(kind string) quantizer {
	return func(t *testing.T, name string, columns int) *export.Quantized {
		value := floats(t, file(t, "gguf", "tiny-"+kind+".dequantized.safetensors"), name)
		switch kind {
		case "mxfp4":
			return of(t, value, exponents(value), true)
		case "q8_0":
			return of(t, value, largest(value, 32, 127), false)
		case "q4_1": // odd codes up to 15, of which a row has one
			return of(t, value, largest(value, columns, 15), false)
		}
		return of(t, value, smallest(value, columns), false)
	}
}

// largest are the largest magnitudes of groups over a code.
func largest(value []float32, group int, code float32) (scale []float32) {
	for g := range slices.Chunk(value, group) {
		m := float32(0)
		for _, v := range g {
			m = max(m, v, -v)
		}
		scale = append(scale, m/code)
	}
	return scale
}

// smallest are the smallest magnitudes above 0 of groups: the step, where some code is ±1.
func smallest(value []float32, group int) (scale []float32) {
	for g := range slices.Chunk(value, group) {
		m := float32(math.MaxFloat32)
		for _, v := range g {
			if v != 0 {
				m = min(m, float32(math.Abs(float64(v))))
			}
		}
		scale = append(scale, m)
	}
	return scale
}

// exponents are the scales of blocks by the rule of the specification: the power of two
// below the largest magnitude, over 4.
func exponents(value []float32) (scale []float32) {
	for _, m := range largest(value, 32, 1) {
		_, e := math.Frexp(float64(m))
		scale = append(scale, float32(math.Ldexp(1, e-1-2)))
	}
	return scale
}

// TestGGUF: packed from the goldens' numbers, every tensor has the goldens' bytes, and the
// entries are the same in the same order.
func TestGGUF(t *testing.T) {
	for _, kind := range []string{"f32", "f16", "q8_0", "q4_0", "q4_1", "mxfp4"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			q, o := fromGGUF(kind), export.Options{}
			if kind == "f32" || kind == "f16" {
				q, o.Float = nil, kind
			}
			if _, err := export.Write(t.Context(), "gguf", vfs.At(out), goldenModel(t, q), o); err != nil {
				t.Fatal(err)
			}
			got, want := openGGUF(t, filepath.Join(out, "model.gguf")), openGGUF(t, filepath.Join(goldens, "gguf", "tiny-"+kind+".gguf"))
			if diff := cmp.Diff(want.Entries(), got.Entries()); diff != "" {
				t.Errorf("entries differ:\n%s", diff)
			}
			found := map[string]gguf.Info{}
			for _, info := range got.Tensors() {
				found[info.Name] = info
			}
			if len(found) != len(want.Tensors()) {
				t.Errorf("%d tensors, want %d", len(found), len(want.Tensors()))
			}
			for _, info := range want.Tensors() {
				g := found[info.Name]
				if kind == "f16" && info.Name == "token_embd.weight" {
					continue // the golden keeps the embedding as float32
				}
				if g.Type != info.Type || !reflect.DeepEqual(g.Shape, info.Shape) || !bytes.Equal(ggufBytes(t, got, g), ggufBytes(t, want, info)) {
					t.Errorf("%s is %s %v and differs from the golden, %s %v", info.Name, g.Type, g.Shape, info.Type, info.Shape)
				}
			}
		})
	}
}

func openGGUF(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func ggufBytes(t *testing.T, f *gguf.File, info gguf.Info) []byte {
	t.Helper()
	out, err := f.Bytes(info)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
