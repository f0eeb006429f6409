package lora_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

const config = `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj", "v_proj", "down_proj"], "bias": "none"}`

// FuzzLoad checks that PEFT files are read or refused, and that the factors have the right sizes.
func FuzzLoad(f *testing.F) {
	model := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2,
		KVHeads: 1,
		Hidden:  4, Vocab: 3, HeadSize: 4, RopePairs: architecture.Interleaved}
	s := lora.Settings{Rank: 2, Alpha: 4, Targets: []string{"attn.qkv", "mlp.down"}}
	list := s.Of(model)
	var tensors []safetensors.Tensor
	for _, t := range lora.TensorsOf(list) {
		values := make([]float32, len(t.Rows)*t.Columns)
		for i := range values {
			values[i] = float32(i)
		}
		tensor, err := safetensors.New(t.Name, []int{len(t.Rows), t.Columns}, values)
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
		factors, _, err := s.Load(1, vfs.At(dir), list)
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

// TestLoadParts checks that rows of attn.qkv that the files do not have start as in a new adapter,
// and that files whose adapters need a changed model, or are not finite, are refused.
func TestLoadParts(t *testing.T) {
	model := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2,
		KVHeads: 2, Hidden: 4, Vocab: 3, HeadSize: 4, RopePairs: architecture.Interleaved}
	s := lora.Settings{Rank: 2, Alpha: 4, Targets: []string{"attn.qkv"}}
	list := s.Of(model)
	dir := vfs.At(t.TempDir())
	write := func(value float64) {
		t.Helper()
		var tensors []safetensors.Tensor
		for _, x := range lora.TensorsOf(list) {
			if strings.HasSuffix(x.Module, "k_proj") {
				continue
			}
			tensor, err := safetensors.New(x.Name, []int{len(x.Rows), x.Columns},
				slices.Repeat([]float32{float32(value)}, len(x.Rows)*x.Columns))
			if err != nil {
				t.Fatal(err)
			}
			tensors = append(tensors, tensor)
		}
		if err := safetensors.WriteFile(t.Context(), dir.Join(lora.PEFTFile), tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	write(9)
	for start, refused := range map[string]bool{`true`: false, `"gaussian"`: false, `"pissa"`: true,
		`"loftq"`: true} {
		text := strings.Replace(config, "{", `{"init_lora_weights": `+start+`, `, 1)
		if err := os.WriteFile(dir.Join(lora.PEFTConfigFile).String(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		const seed = 7
		factors, _, err := s.Load(seed, dir, list)
		if refused {
			if err == nil || !strings.Contains(err.Error(), "init_lora_weights") {
				t.Errorf("init_lora_weights %s: the error is %v", start, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []lora.Factor{list[0].A(), list[0].B()} {
			want, width, third := make([]float32, f.Dims[0]*f.Dims[1]), f.Dims[1], f.Dims[0]/3
			f.Draw(seed, want)
			for i := range want {
				if row := i / width; row < third || row >= 2*third { // queries and values
					want[i] = 9
				}
			}
			if !slices.Equal(factors[f.Name], want) {
				t.Errorf("%s is %v, want %v", f.Name, factors[f.Name], want)
			}
		}
	}
	write(math.Inf(1))
	if err := os.WriteFile(dir.Join(lora.PEFTConfigFile).String(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Load(1, dir, list); err == nil ||
		!strings.Contains(err.Error(), "has values that are NaN or infinite") {
		t.Errorf("infinite factors: %v", err)
	}
}
