package export_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// The goldens were written by a separate Python program, from the descriptions of the formats, and
// read back by compressed-tensors 0.20, transformers 5.23 and gguf 0.19. Those of MLX were written
// by mlx-lm 0.32.2, in several modes, and unpacked by mx.dequantize of MLX 0.32.4. float is the
// model; the others are exports of it.
const goldens = "testdata/golden"

// quantizer returns the output of a quantizer's program for a matrix in the layout of Hugging Face.
type quantizer func(t *testing.T, name string, columns int) *export.Quantized

// goldenModel returns the golden model with a quantizer for all matrices of its block except those
// in leftOut.
func goldenModel(t *testing.T, q quantizer, leftOut ...string) *export.Model {
	t.Helper()
	c, err := huggingface.Open(vfs.At(filepath.Join(goldens, "float")), huggingface.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	places, err := huggingface.Layout(c.Config.Settings)
	if err != nil {
		t.Fatal(err)
	}
	m := &export.Model{Settings: c.Config.Settings, Params: c.Params(),
		Card: export.Card{Name: "tiny"}}
	m.Settings.Context = c.Config.MaxPositions
	m.Latent = func(param string) ([]float32, error) {
		values, err := c.Values(param)
		return slices.Clone(values), err
	}
	m.Quantized = func(param string) (*export.Quantized, error) {
		if q == nil || !strings.HasPrefix(param, "layers.") || strings.HasSuffix(param, "norm") ||
			slices.Contains(leftOut, param) {
			return nil, nil
		}
		return assemble(t, places, param, q), nil
	}
	m.Tokenizer = goldenTokenizer(t)
	return m
}

func goldenTokenizer(t *testing.T) export.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Open(filepath.Join(goldens, "float"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if files[name], err = os.ReadFile(filepath.Join(goldens, "float", name)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := export.NewTokenizer(files, tok.Info())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// assemble assembles a parameter from matrices in the layout of Hugging Face.
func assemble(
	t *testing.T, places []huggingface.Mapping, param string, q quantizer,
) *export.Quantized {
	var out *export.Quantized
	for _, p := range places {
		if p.Param.Name != param {
			continue
		}
		rows, columns := p.Param.Dims[0], p.Param.Dims[1]
		piece := q(t, p.Tensor, columns)
		perRow := len(piece.Scale) / len(p.Rows)
		if out == nil {
			out = &export.Quantized{Value: make([]float32, rows*columns), Codes: make([]int32, rows*columns),
				Scale: make([]float32, rows*perRow), Grid: piece.Grid}
		}
		for i, r := range p.Rows {
			copy(out.Value[r*columns:], piece.Value[i*columns:(i+1)*columns])
			copy(out.Codes[r*columns:], piece.Codes[i*columns:(i+1)*columns])
			copy(out.Scale[r*perRow:], piece.Scale[i*perRow:(i+1)*perRow])
		}
	}
	return out
}

// file opens a safetensors file of the goldens.
func file(t *testing.T, elem ...string) *safetensors.File {
	t.Helper()
	return tensors(t, append([]string{goldens}, elem...)...)
}

func tensors(t *testing.T, elem ...string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(vfs.At(filepath.Join(elem...)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func data(t *testing.T, f *safetensors.File, name string) []byte {
	t.Helper()
	tensor, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tensor.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func floats(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	tensor, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := safetensors.Values[float32](tensor)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var magnitudes = []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// fourBit returns the E2M1 code whose number times the scale is v.
func fourBit(t *testing.T, v, scale float32) int32 {
	for code, m := range magnitudes {
		if m*scale == float32(math.Abs(float64(v))) {
			if math.Signbit(float64(v)) {
				code += 8
			}
			return int32(code)
		}
	}
	t.Fatalf("%v is no number of E2M1 times %v", v, scale)
	return 0
}

// of returns the output of a quantizer with the given values, scales of groups and grid.
func of(t *testing.T, value, scale []float32, grid sdk.Grid) *export.Quantized {
	q := &export.Quantized{Value: value, Scale: scale, Codes: make([]int32, len(value)), Grid: grid}
	for i, v := range value {
		s := scale[i/(len(value)/len(scale))]
		if grid.Format == sdk.E2M1(0).Format {
			q.Codes[i] = fourBit(t, v, s)
		} else {
			q.Codes[i] = int32(math.Round(float64(v / s)))
		}
	}
	return q
}

// compressed returns a quantizer with the values and scales of a golden directory.
func compressed(dir string) quantizer {
	return func(t *testing.T, name string, columns int) *export.Quantized {
		f := file(t, dir, "model.safetensors")
		value := floats(t, file(t, dir, "dequantized.safetensors"), name)
		switch dir {
		case "ct_mxfp4":
			var scale []float32
			for _, e := range data(t, f, name+"_scale") {
				scale = append(scale, float32(math.Ldexp(1, int(e)-127)))
			}
			return of(t, value, scale, sdk.E2M1(32))
		case "ct_nvfp4":
			global := floats(t, f, name+"_global_scale")[0]
			var scale []float32
			for _, b := range data(t, f, name+"_scale") {
				scale = append(scale, e4m3(b)/global)
			}
			return of(t, value, scale, sdk.E2M1(16))
		}
		grids := map[string]sdk.Grid{"ct_int4_channel": sdk.Integers(-8, 7, 0),
			"ct_int8_channel": sdk.Integers(-128, 127, 0),
			"ct_int4_group":   sdk.Integers(-8, 7, 32), "ct_centred_as_int8": sdk.OddIntegers(15, 0)}
		return of(t, value, floats(t, f, name+"_scale"), grids[dir])
	}
}

// e4m3 returns the E4M3 number of a code without sign.
func e4m3(b byte) float32 {
	if b < 8 {
		return float32(math.Ldexp(float64(b), -9))
	}
	return float32(math.Ldexp(1+float64(b&7)/8, int(b>>3)-7))
}

// TestCompressedTensors checks that tensors packed from the numbers of the goldens have their
// bytes, and that config.json describes them in the same way.
func TestCompressedTensors(t *testing.T) {
	for _, dir := range []string{"ct_int4_channel", "ct_int4_group", "ct_int8_channel",
		"ct_centred_as_int8", "ct_mxfp4", "ct_nvfp4"} {
		t.Run(dir, func(t *testing.T) {
			var leftOut []string
			// In the golden each layer has a global scale. Exports have one for queries, keys and values,
			// and one for both layers before the gate.
			own := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj",
				"mlp.up_proj"}
			if dir == "ct_nvfp4" {
				leftOut = []string{"layers.0.attn.qkv", "layers.0.mlp.w1", "layers.0.mlp.w2"}
			}
			out := filepath.Join(t.TempDir(), "out")
			report, err := export.Write(t.Context(), "compressed-tensors", vfs.At(out),
				goldenModel(t, compressed(dir), leftOut...), export.Options{})
			if err != nil || !report.Exact {
				t.Fatalf("exact: %v, error %v", report, err)
			}
			got := tensors(t, out, "model.safetensors")
			golden := file(t, dir, "model.safetensors")
			for _, info := range golden.Tensors() {
				if leftOut != nil &&
					slices.ContainsFunc(own, func(name string) bool { return strings.Contains(info.Name, name) }) {
					continue
				}
				tensor, err := got.Tensor(info.Name)
				if err != nil {
					t.Error(err)
					continue
				}
				if tensor.DType != info.DType || !slices.Equal(tensor.Shape, info.Shape) ||
					!bytes.Equal(data(t, got, info.Name), data(t, golden, info.Name)) {
					t.Errorf("%s is %s %v and differs from the golden, %s %v", info.Name, tensor.DType,
						tensor.Shape, info.DType, info.Shape)
				}
			}
			want := entry(t, filepath.Join(goldens, dir))
			if leftOut != nil { // linear layers that are not quantized are named
				all := want.(map[string]any)
				for _, layer := range own {
					all["ignore"] = append(all["ignore"].([]any), "model.layers.0."+layer)
				}
			}
			if diff := cmp.Diff(want, entry(t, out)); diff != "" {
				t.Errorf("quantization_config differs:\n%s", diff)
			}
		})
	}
}

// entry returns the quantization_config of a directory.
func entry(t *testing.T, dir string) any {
	t.Helper()
	var config map[string]any
	testfile.ReadJSON(t, filepath.Join(dir, "config.json"), &config)
	return config["quantization_config"]
}

// TestFloat checks that an export of plain floats has the golden's tensors, byte for byte, and its
// tokenizer files.
func TestFloat(t *testing.T) {
	out, report := exported(t, "hf", goldenModel(t, nil), export.Options{})
	got := tensors(t, out, "model.safetensors")
	want := file(t, "float", "model.safetensors")
	if len(got.Tensors()) != len(want.Tensors()) || len(report.Tensors) != len(want.Tensors()) {
		t.Errorf("%d tensors, %d in the report, want %d", len(got.Tensors()), len(report.Tensors),
			len(want.Tensors()))
	}
	for _, info := range want.Tensors() {
		if !bytes.Equal(data(t, got, info.Name), data(t, want, info.Name)) {
			t.Errorf("%s differs", info.Name)
		}
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "README.md",
		"generation_config.json", "export.json"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		golden, _ := os.ReadFile(filepath.Join(goldens, "float", name))
		if err != nil || golden != nil && !bytes.Equal(text, golden) {
			t.Errorf("%s is another file, or there is none: %v", name, err)
		}
	}
}

// TestFloatTypeOfMixtures checks that config.json has the type bfloat16 if any weight is packed in
// four-bit floats.
func TestFloatTypeOfMixtures(t *testing.T) {
	powers := func(m []float32) (out []float32) {
		for _, v := range m {
			_, e := math.Frexp(float64(v))
			out = append(out, float32(math.Ldexp(1, e-3)))
		}
		return out
	}
	floats, whole := fourBitFloats(t, 32, powers), integers(32, halfSeventh)
	for among, want := range map[string][2]string{
		"":     {"mxfp4-pack-quantized", "bfloat16"},
		"attn": {"mixed-precision", "bfloat16"},
		"none": {"pack-quantized", "float32"},
	} {
		m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
			if strings.Contains(p.Name, among) {
				return floats(p, x)
			}
			return whole(p, x)
		})
		out := filepath.Join(t.TempDir(), "out")
		if _, err := export.Write(t.Context(), "compressed-tensors", vfs.At(out), m,
			export.Options{}); err != nil {
			t.Errorf("%q: %v", among, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(out, "config.json"))
		var config struct {
			Type         string                  `json:"torch_dtype"`
			Quantization struct{ Format string } `json:"quantization_config"`
		}
		if err == nil {
			err = json.Unmarshal(text, &config)
		}
		if got := [2]string{config.Quantization.Format, config.Type}; err != nil || got != want {
			t.Errorf("%q: %v, want %v, %v", among, got, want, err)
		}
	}
}
