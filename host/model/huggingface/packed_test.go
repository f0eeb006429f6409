package huggingface_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// packedDirs have matrices as compressed-tensors, transformers and MLX store them; make.py there
// has written them.
var packedDirs = []string{"compressed", "fp8", "mlx"}

func packedDir(name string) vfs.Path { return vfs.At("testdata/packed").Join(name) }

// TestPacked compares each matrix exactly with what the program that stored it decodes.
func TestPacked(t *testing.T) {
	for _, name := range packedDirs {
		want, err := safetensors.Open(packedDir(name).Join("dequantized.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := huggingface.OpenTensors(packedDir(name))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Tensors()); n != len(want.Tensors()) {
			t.Errorf("%s: %d tensors, want %d", name, n, len(want.Tensors()))
		}
		for _, info := range want.Tensors() {
			tensor, err := want.Tensor(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			expected, err := safetensors.Values[float32](tensor)
			if err != nil {
				t.Fatal(err)
			}
			if tensor, err = got.Tensor(info.Name); err != nil {
				t.Fatal(err)
			}
			values, err := safetensors.Values[float32](tensor)
			if err != nil || !slices.Equal(values, expected) {
				t.Errorf("%s: %s: error %v, or other values:\n%v, want\n%v",
					name, info.Name, err, values, expected)
			}
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
		if err := want.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedPacked leaves out each tensor in turn, and gives it another shape. The matrix whose
// part is missing is an error then, and the others are read as before.
func TestDamagedPacked(t *testing.T) {
	for _, name := range packedDirs {
		parts := 0 // how often others are read beside a matrix that is an error
		config, err := packedDir(name).Join("config.json").ReadFile()
		if err != nil {
			t.Fatal(err)
		}
		whole, err := safetensors.Open(packedDir(name).Join("model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		for _, damaged := range whole.Tensors() {
			for _, change := range []string{"missing", "flat", "longer"} {
				var list []safetensors.Tensor
				for _, info := range whole.Tensors() {
					tensor, err := whole.Tensor(info.Name)
					if err != nil {
						t.Fatal(err)
					}
					if info.Name == damaged.Name {
						if change == "missing" {
							continue
						}
						if tensor = reshaped(t, tensor, change); slices.Equal(tensor.Shape, info.Shape) {
							continue
						}
					}
					list = append(list, tensor)
				}
				dir := vfs.At(t.TempDir())
				testfile.Write(t, dir.Join("config.json").Name, config)
				if err := safetensors.WriteFile(t.Context(), dir.Join("model.safetensors"), list,
					nil); err != nil {
					t.Fatal(err)
				}
				module := damaged.Name[:strings.LastIndex(damaged.Name, ".")]
				read := matricesOf(dir)
				if len(read) > 0 && !slices.Contains(read, module+".weight") {
					parts++
				}
				for _, other := range matricesOf(packedDir(name)) {
					is := slices.Contains(read, other)
					if other == module+".weight" && change == "missing" && is ||
						other != module+".weight" && !is && len(read) > 0 {
						t.Errorf("%s, %s %s: %s is read: %t", name, damaged.Name, change, other, is)
					}
				}
			}
		}
		if err := whole.Close(); err != nil {
			t.Error(err)
		}
		if parts == 0 {
			t.Errorf("%s: no file with a damaged matrix was read", name)
		}
	}
}

// reshaped returns a tensor of another shape: with one axis, or with a further first row.
func reshaped(t *testing.T, tensor safetensors.Tensor, change string) safetensors.Tensor {
	data, err := tensor.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	n := len(data) * 8 / tensor.DType.Bits()
	shape := []int{n}
	if change == "longer" && len(tensor.Shape) > 0 {
		row := len(data) / max(1, tensor.Shape[0])
		data = slices.Concat(data[:row], data)
		shape = slices.Clone(tensor.Shape)
		shape[0]++
	}
	raw, err := safetensors.New(tensor.Name, []int{len(data)}, data)
	if err != nil {
		t.Fatal(err)
	}
	raw.DType, raw.Shape = tensor.DType, shape
	return raw
}

// matricesOf returns the names of the tensors in a directory that can be read; none if the
// directory is refused as a whole.
func matricesOf(dir vfs.Path) (names []string) {
	tensors, err := huggingface.OpenTensors(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = tensors.Close() }()
	for _, info := range tensors.Tensors() {
		tensor, err := tensors.Tensor(info.Name)
		if err == nil {
			_, err = tensor.Bytes()
		}
		if err == nil {
			names = append(names, info.Name)
		}
	}
	return names
}

// TestPackedRefused reads configurations of other quantizations: each is refused by its name.
func TestPackedRefused(t *testing.T) {
	const compressed = `{"quant_method": "compressed-tensors", `
	for value, want := range map[string]string{
		`{"quant_method": "gptq", "bits": 4}`: `quantization_config.quant_method: found "gptq", want ` +
			`compressed-tensors or fp8`,
		`{"quant_method": "mxfp4"}`: `found "mxfp4"`,
		`{"bits": 4}`:               `quant_method: missing`,
		compressed + `"sparsity_config": {"format": "sparse-24-bitmask"}}`: `sparsity_config.format: ` +
			`found "sparse-24-bitmask", want dense`,
		compressed + `"transform_config": {"config_groups": {"v": {}}}}`: `transform_config`,
		compressed + `"quantization_status": "frozen"}`:                  `found "frozen"`,
		compressed + `"kv_cache_scheme": {"num_bits": 8}}`:               `kv_cache_scheme`,
		compressed + `"config_groups": {"a": {"weights": {"num_bits": "4"}}}}`: `config_groups.a.` +
			`weights.num_bits`,
	} {
		dir := vfs.At(t.TempDir())
		testfile.Write(t, dir.Join("config.json").Name, []byte(`{"quantization_config": `+value+`}`))
		file := dir.Join("model.safetensors")
		if err := safetensors.WriteFile(t.Context(), file, nil, nil); err != nil {
			t.Fatal(err)
		}
		_, err := huggingface.OpenTensors(dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}
