package gguf_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testgguf"
	"github.com/cage-qat/cage/internal/vfs"
)

// goldens is a directory of files that the Python package gguf 0.19 of llama.cpp wrote.
const goldens = "../../deploy/export/testdata/golden/gguf"

// TestRewrite checks that reading files of another implementation and writing them again gives the
// same bytes.
func TestRewrite(t *testing.T) {
	files, err := filepath.Glob(goldens + "/*.gguf")
	if err != nil || len(files) != 6 {
		t.Fatalf("found %v, error %v", files, err)
	}
	for _, name := range files {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got := rewritten(t, testgguf.Open(t, name))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the copy differs: %d bytes, want %d", name, len(got), len(want))
		}
	}
}

func rewritten(t *testing.T, f *gguf.File) []byte {
	t.Helper()
	var tensors []gguf.Tensor
	for _, info := range f.Tensors {
		tensors = append(tensors, gguf.Tensor{Name: info.Name, Type: info.Type, Shape: info.Shape,
			Write: func(w io.Writer) error {
				_, err := w.Write(testgguf.Data(t, f, info))
				return err
			}})
	}
	var out bytes.Buffer
	if err := gguf.Write(t.Context(), &out, f.Entries, tensors); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// names maps tensors of a block of the goldens to their names in Hugging Face checkpoints.
var names = map[string]string{
	"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
	"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

// TestValues compares decoded blocks with the dequantized numbers.
func TestValues(t *testing.T) {
	for _, kind := range []string{"q4_0", "q4_1", "q8_0", "mxfp4"} {
		f := testgguf.Open(t, filepath.Join(goldens, "tiny-"+kind+".gguf"))
		want, err := safetensors.Open(
			vfs.At(filepath.Join(goldens, "tiny-"+kind+".dequantized.safetensors")))
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		compared := 0
		for _, info := range f.Tensors {
			block, found := strings.CutPrefix(strings.TrimSuffix(info.Name, ".weight"), "blk.0.")
			name, plain := names[block]
			if !found || !plain { // rows of queries and keys are permuted
				continue
			}
			tensor, err := want.Tensor("model.layers.0." + name + ".weight")
			if err != nil {
				t.Fatal(err)
			}
			expected, err := safetensors.Values[float32](tensor)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Values(info)
			if err != nil || !slices.Equal(got, expected) || !slices.Equal(info.Shape, tensor.Shape) {
				t.Errorf("%s: %s differs, error %v", kind, info.Name, err)
			}
			compared++
		}
		if compared != len(names) {
			t.Errorf("%s: %d tensors were compared", kind, compared)
		}
	}
}

// TestBlocks checks that random bytes of nine types decode to the same bits as with the package
// gguf.
func TestBlocks(t *testing.T) {
	f := testgguf.Open(t, "testdata/blocks.gguf")
	want, err := safetensors.Open(vfs.At("testdata/blocks.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if len(f.Tensors) != 9 || len(want.Tensors()) != 9 {
		t.Fatalf("%d tensors, and %d decoded ones", len(f.Tensors), len(want.Tensors()))
	}
	for _, info := range f.Tensors {
		tensor, err := want.Tensor(info.Type.String())
		if err != nil {
			t.Fatal(err)
		}
		expected, err := safetensors.Values[float32](tensor)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Values(info)
		if err != nil || len(got) != len(expected) || len(got) != 4*256 {
			t.Fatalf("%s: %d values, want %d, error %v", info.Type, len(got), len(expected), err)
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(expected[i]) &&
				(info.Type != gguf.MXFP4 || got[i] != expected[i]) { // see TestNegativeZeros
				t.Fatalf("%s: element %d is %v, want %v", info.Type, i, got[i], expected[i])
			}
		}
	}
}

// TestNegativeZeros checks that the code of −0, and it alone, is read as −0, so that an export can
// have the same codes. llama.cpp and the package gguf read it as 0.
func TestNegativeZeros(t *testing.T) {
	for typ, scales := range map[gguf.Type][]byte{gguf.MXFP4: {127}, gguf.NVFP4: {56, 56, 56, 56}} {
		elements, size := typ.Block()
		for code := range byte(16) {
			data := slices.Concat(scales, bytes.Repeat([]byte{code << 4}, size-len(scales)))
			values, err := gguf.Decode(typ, data)
			if err != nil || len(values) != elements {
				t.Fatalf("%s: %d values, error %v", typ, len(values), err)
			}
			negative := 0
			for _, v := range values {
				if math.Signbit(float64(v)) {
					negative++
				}
			}
			if want := elements / 2 * int(code>>3); negative != want {
				t.Errorf("%s, code %d: %d negative numbers, want %d", typ, code, negative, want)
			}
		}
	}
}

// TestBlocksOfLlamaCPP checks the same for types that llama.cpp itself decoded, including every
// scale of NVFP4.
func TestBlocksOfLlamaCPP(t *testing.T) {
	file, err := safetensors.Open(vfs.At("testdata/llamacpp.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, typ := range []gguf.Type{gguf.Q2_0, gguf.NVFP4, gguf.Q1_0, gguf.Q5_0, gguf.Q5_1} {
		data, err := file.Tensor(typ.String() + ".data")
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := data.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		values, err := file.Tensor(typ.String() + ".values")
		if err != nil {
			t.Fatal(err)
		}
		want, err := safetensors.Values[float32](values)
		if err != nil {
			t.Fatal(err)
		}
		got, err := gguf.Decode(typ, blocks)
		elements, _ := typ.Block()
		if err != nil || len(got) != 64*elements || !slices.Equal(got, want) { // −0 equals 0
			t.Errorf("%s: %d numbers differ, error %v", typ, len(got), err)
		}
	}
}

// TestHalf checks the decoding of all 65,536 half-precision numbers.
func TestHalf(t *testing.T) {
	for bits := range 1 << 16 {
		got, err := gguf.Decode(gguf.F16, []byte{byte(bits), byte(bits >> 8)})
		if err != nil {
			t.Fatal(err)
		}
		want := float64(bits&0x3ff) * 0x1p-24
		if e := bits >> 10 & 31; e == 31 {
			want = math.Inf(1)
			if bits&0x3ff != 0 {
				want = math.NaN()
			}
		} else if e > 0 {
			want = (1 + float64(bits&0x3ff)/1024) * math.Pow(2, float64(e-15))
		}
		if bits&0x8000 != 0 {
			want = -want
		}
		if g := float64(got[0]); g != want && !(math.IsNaN(g) && math.IsNaN(want)) {
			t.Fatalf("%#04x is %v, want %v", bits, g, want)
		}
	}
}
