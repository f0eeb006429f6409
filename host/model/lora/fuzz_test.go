package lora_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

const config = `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "down_proj"], "bias": "none"}`

// FuzzLoad checks that PEFT files are read or refused, and that the factors have the right sizes.
func FuzzLoad(f *testing.F) {
	model := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2,
		KVHeads: 1,
		Hidden:  4, Vocab: 3, HeadSize: 4, RopePairs: architecture.Interleaved}
	s := lora.Settings{Rank: 2, Alpha: 4, Targets: []string{"attn.qkv", "mlp.down"}}
	list := s.Of(model.Params())
	layout, err := huggingface.Layout(model)
	if err != nil {
		f.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, t := range lora.TensorsOf(list, layout) {
		values := make([]float32, len(t.Rows)*t.Dims[1])
		for i := range values {
			values[i] = float32(i)
		}
		tensor, err := safetensors.New(t.Name, []int{len(t.Rows), t.Dims[1]}, values)
		if err != nil {
			f.Fatal(err)
		}
		tensors = append(tensors, tensor)
	}
	path := filepath.Join(f.TempDir(), lora.PEFTFile)
	if err := safetensors.WriteFile(f.Context(), vfs.At(path), tensors, nil); err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(config), file)
	f.Add([]byte(config), file[:len(file)/2])
	for _, change := range [][2]string{{"LORA", "IA3"}, {`"r": 2`, `"r": 3`}, {`"none"`, `"all"`},
		{`"bias"`, `"use_dora": true, "bias"`},
		{`{"peft_type"`, `["peft_type"`}} {
		f.Add(bytes.Replace([]byte(config), []byte(change[0]), []byte(change[1]), 1), file)
	}
	f.Add([]byte(config), bytes.ReplaceAll(file, []byte("q_proj"), []byte("x_proj")))
	f.Fuzz(func(t *testing.T, config, file []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{lora.PEFTConfigFile: config, lora.PEFTFile: file} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		factors, err := s.Load(vfs.At(dir), list, layout)
		if err != nil {
			return
		}
		for _, a := range list {
			for _, factor := range []lora.Factor{a.A(), a.B()} {
				if n := len(factors[factor.Name]); n > 0 && n != factor.Dims[0]*factor.Dims[1] {
					t.Errorf("%s has %d elements, want the shape %v", factor.Name, n, factor.Dims)
				}
				delete(factors, factor.Name)
			}
		}
		if len(factors) > 0 {
			t.Errorf("unknown factors: %v", factors)
		}
	})
}
