package huggingface_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestPaddedWords checks that integers of 3 bits are read in both layouts of compressed-tensors:
// without padding, and, as older versions wrote them, ten in a word of 32 bits.
func TestPaddedWords(t *testing.T) {
	const bits, rows, columns, scale = 3, 33, 64, 1.0
	for name, per := range map[string]int{"split over words": 0, "padded": 32 / bits} {
		words := func(codes []int) []uint32 {
			size := (len(codes)*bits + 31) / 32
			if per > 0 {
				size = (len(codes) + per - 1) / per
			}
			list := make([]uint32, size)
			for i, code := range codes {
				at := i * bits
				if per > 0 {
					at = i/per*32 + i%per*bits
				}
				list[at/32] |= uint32(code) << (at % 32)
				if at%32+bits > 32 {
					list[at/32+1] |= uint32(code) >> (32 - at%32)
				}
			}
			return list
		}
		code := func(row, column int) int { return (row + column*column) % 8 }
		var packed []uint32
		zeros, scales := make([]int, rows), make([]float32, rows)
		for r := range rows {
			row := make([]int, columns)
			for c := range row {
				row[c] = code(r, c)
			}
			packed = append(packed, words(row)...)
			zeros[r], scales[r] = r*3%8, scale
		}
		tensor := func(name string, dtype safetensors.DType, data any, shape ...int) safetensors.Tensor {
			var b bytes.Buffer
			if err := binary.Write(&b, binary.LittleEndian, data); err != nil {
				t.Fatal(err)
			}
			x, err := safetensors.New("m."+name, []int{b.Len()}, b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			x.DType, x.Shape = dtype, shape
			return x
		}
		dir := vfs.At(t.TempDir())
		if err := os.WriteFile(dir.Join(huggingface.ConfigName).Name, []byte(`{"quantization_config": {
			"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a":
			{"targets": ["Linear"], "weights": {"num_bits": 3, "symmetric": false}}}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		down := words(zeros)
		err := safetensors.WriteFile(t.Context(), dir.Join("model.safetensors"), []safetensors.Tensor{
			tensor("weight_packed", safetensors.I32, packed, rows, len(packed)/rows),
			tensor("weight_scale", safetensors.F32, scales, rows, 1),
			tensor("weight_zero_point", safetensors.I32, down, len(down), 1),
			tensor("weight_shape", safetensors.I64, []int64{rows, columns}, 2)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files, err := huggingface.OpenTensors(dir)
		if err != nil {
			t.Fatal(err)
		}
		x, err := files.Tensor("m.weight")
		if err != nil {
			t.Fatal(err)
		}
		values, err := safetensors.Floats(x)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if want := float32(code(i/columns, i%columns) - zeros[i/columns]); v != want {
				t.Fatalf("%s: element %d is %v, want %v", name, i, v, want)
			}
		}
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWindowOfQwen checks that Qwen2 and Qwen3 have a window of 4096 if config.json turns windows
// on and does not say how large they are; cage refuses longer contexts.
func TestWindowOfQwen(t *testing.T) {
	for _, family := range []string{"Qwen2", "Qwen3"} {
		text := `{"architectures": ["` + family + `ForCausalLM"], "model_type": "` +
			strings.ToLower(family) + `", "hidden_size": 64, "num_hidden_layers": 32,
			"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128,
			"vocab_size": 100, "use_sliding_window": true}`
		if _, err := huggingface.ParseConfig([]byte(text), 0); err == nil ||
			!strings.Contains(err.Error(), "sliding_window: 4096") {
			t.Errorf("%s: got error %v, want that of a window of 4096", family, err)
		}
		if _, err := huggingface.ParseConfig([]byte(text), 4096); err != nil {
			t.Errorf("%s: %v", family, err)
		}
	}
}
