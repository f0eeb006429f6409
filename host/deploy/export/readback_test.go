package export

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

const goldens = "testdata/golden"

// TestGoldens reads directories that another program wrote, and compares every packed weight
// exactly with its numbers.
func TestGoldens(t *testing.T) {
	for _, dir := range []string{"ct_int4_channel", "ct_int4_group", "ct_int8_channel",
		"ct_centred_as_int8", "ct_mxfp4", "ct_nvfp4", "mlx"} {
		want, err := safetensors.Open(vfs.At(filepath.Join(goldens, dir, "dequantized.safetensors")))
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		err = readDirectory(vfs.At(filepath.Join(goldens, dir)),
			func(name string, values []float32) error {
				tensor, err := want.Tensor(name)
				if err != nil {
					return nil // it is not quantized
				}
				expected, err := safetensors.Values[float32](tensor)
				if err != nil {
					return err
				}
				compared++
				for i, v := range values {
					if v != expected[i] {
						t.Fatalf("%s: %s: %v at %d, want %v", dir, name, v, i, expected[i])
					}
				}
				if len(values) != len(expected) {
					t.Errorf("%s: %s has %d numbers, want %d", dir, name, len(values), len(expected))
				}
				return nil
			})
		if err != nil || compared != 7 {
			t.Errorf("%s: %d weights were compared, error %v", dir, compared, err)
		}
		if err := want.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzDirectory checks that reading never panics, whatever the configuration and the shapes of a
// packed weight are.
func FuzzDirectory(f *testing.F) {
	for _, name := range []string{"ct_int4_group", "ct_mxfp4", "ct_nvfp4", "float"} {
		var config map[string]json.RawMessage
		testfile.ReadJSON(f, filepath.Join(goldens, name, "config.json"), &config)
		f.Add([]byte(`{"quantization_config": `+string(config["quantization_config"])+`}`), uint8(2),
			uint8(4), uint8(1), int64(32))
	}
	f.Add([]byte(`{"quantization": {"bits": 4, "group_size": 32, "mode": "affine", "d": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}}`), uint8(2), uint8(4), uint8(1), int64(32))
	f.Fuzz(func(t *testing.T, config []byte, rows, columns, groups uint8, width int64) {
		dir := vfs.At(t.TempDir())
		testfile.Write(t, dir.Join("config.json").Name, config)
		n := int(rows) * int(columns)
		tensors := []safetensors.Tensor{
			must(safetensors.New("a.weight_packed", []int{int(rows), int(columns)}, make([]int32, n)))(t),
			must(safetensors.New("a.weight_scale", []int{int(rows), int(groups)},
				make([]float32, int(rows)*int(groups))))(t),
			must(safetensors.New("a.weight_shape", []int{2}, []int64{int64(rows), width}))(t),
			must(safetensors.New("b.weight_packed", []int{int(rows), int(columns)}, make([]uint8, n)))(t),
			must(safetensors.New("b.weight_scale", []int{int(rows), int(groups)},
				make([]uint8, int(rows)*int(groups))))(t),
		}
		// Otherwise the first error would hide these tensors.
		if bytes.Contains(config, []byte(`"quantization"`)) {
			tensors = []safetensors.Tensor{
				must(safetensors.New("c.weight", []int{int(rows), int(columns)}, make([]uint32, n)))(t),
				must(safetensors.New("c.scales", []int{int(rows), int(groups)},
					make([]float32, int(rows)*int(groups))))(t),
				must(safetensors.New("c.biases", []int{int(rows), int(groups)},
					make([]float32, int(rows)*int(groups))))(t),
				must(safetensors.New("d.weight", []int{int(rows), int(columns)}, make([]uint32, n)))(t),
				must(safetensors.New("d.scales", []int{int(rows), int(groups)},
					make([]uint8, int(rows)*int(groups))))(t),
			}
		}
		if err := safetensors.WriteFile(t.Context(), dir.Join("model.safetensors"), tensors,
			nil); err != nil {
			t.Fatal(err)
		}
		_ = readDirectory(dir, func(string, []float32) error { return nil })
	})
}

func must(tensor safetensors.Tensor, err error) func(t *testing.T) safetensors.Tensor {
	return func(t *testing.T) safetensors.Tensor {
		if err != nil {
			t.Fatal(err)
		}
		return tensor
	}
}
