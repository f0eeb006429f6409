package lora_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// readPEFT reads testdata/peft.json, which PEFT wrote.
func readPEFT(t *testing.T) (out struct {
	Defaults map[string]any `json:"defaults"`
	Settings []struct {
		Config struct {
			RSLoRA bool           `json:"use_rslora"`
			Ranks  map[string]any `json:"rank_pattern"`
			Alphas map[string]any `json:"alpha_pattern"`
		} `json:"config"`
		Modules map[string][2]float64 `json:"modules"`
	} `json:"settings"`
}) {
	t.Helper()
	text, err := os.ReadFile("testdata/peft.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var twoLayers = architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 8, Heads: 2,
	KVHeads: 1, Hidden: 4, Vocab: 3, HeadSize: 4}

func plainLoRA() lora.Settings {
	return lora.Settings{Rank: 4, Alpha: 6, Targets: lora.Targets}
}

// writePEFT writes files of PEFT with factors of ones.
func writePEFT(t *testing.T, config map[string]any, tensors []lora.Tensor) vfs.Path {
	t.Helper()
	dir := vfs.At(t.TempDir())
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.Join(lora.PEFTConfigFile).String(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	var list []safetensors.Tensor
	for _, x := range tensors {
		tensor, err := safetensors.New(x.Name, []int{len(x.Rows), x.Columns},
			slices.Repeat([]float32{1}, len(x.Rows)*x.Columns))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tensor)
	}
	if err := safetensors.WriteFile(t.Context(), dir.Join(lora.PEFTFile), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPatterns compares the ranks and scales of modules with those of PEFT, and checks that files
// with these patterns are read by a run that has them, and refused by one that has none.
func TestPatterns(t *testing.T) {
	golden := readPEFT(t)
	for i, of := range golden.Settings {
		s := plainLoRA()
		s.RSLoRA = of.Config.RSLoRA
		config := maps.Clone(golden.Defaults)
		maps.Copy(config, map[string]any{"r": 4, "lora_alpha": 6, "use_rslora": s.RSLoRA})
		for key, pattern := range map[string]map[string]any{"rank_pattern": of.Config.Ranks,
			"alpha_pattern": of.Config.Alphas} {
			// Where expressions overlap, the longer one is the first in the file.
			names := slices.SortedFunc(maps.Keys(pattern), func(a, b string) int { return len(b) - len(a) })
			var members []string
			for _, name := range names {
				members = append(members, fmt.Sprintf("%q: %v", name, pattern[name]))
				entry := fmt.Sprintf("%s=%v", name, pattern[name])
				if key == "rank_pattern" {
					s.Ranks = append(s.Ranks, entry)
				} else {
					s.Alphas = append(s.Alphas, entry)
				}
			}
			config[key] = jsontext.Value("{" + strings.Join(members, ", ") + "}")
		}
		if problems := s.Check(twoLayers); i < 4 && len(problems) > 0 {
			t.Error(problems)
		}
		list, found := s.Of(twoLayers), 0
		for _, a := range list {
			for _, p := range a.Parts {
				found++
				if got := [2]float64{float64(p.Rank), p.Scale}; got != of.Modules[p.Module] {
					t.Errorf("settings %d: %s has rank and scale %v, want %v", i, p.Module, got,
						of.Modules[p.Module])
				}
			}
		}
		if found != len(of.Modules) {
			t.Errorf("settings %d: there are %d modules, want %d", i, found, len(of.Modules))
		}
		dir := writePEFT(t, config, lora.TensorsOf(list))
		factors, missing, err := s.Load(1, dir, list)
		if err != nil || len(missing) > 0 || len(factors) != 2*len(list) {
			t.Errorf("settings %d: %d factors, missing %q, error %v", i, len(factors), missing, err)
		}
		for _, a := range list { // B of a part of a lower rank has unused columns
			ones, want := 0.0, 0
			for _, x := range factors[a.B().Name] {
				ones += float64(x)
			}
			for _, p := range a.Parts {
				want += len(p.Rows) * p.Rank
			}
			if int(ones) != want {
				t.Errorf("settings %d: %s has %v ones, want %d", i, a.B().Name, ones, want)
			}
		}
		plain := plainLoRA()
		_, _, err = plain.Load(1, dir, plain.Of(twoLayers))
		if want := "and in [adapters] the rank 4 and the scale 1.5: want rank = 4, alpha = 6"; i > 0 &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("settings %d in a run without them: %v", i, err)
		}
	}
}

// TestPatternFaults checks that patterns that cannot be meant are reported.
func TestPatternFaults(t *testing.T) {
	for entry, want := range map[string]string{"qproj=2": "matches no module", "q_proj": "no number",
		"(=3": "no regular expression", "=3": "no regular expression", "q_proj=0": "out of range",
		"q_proj=2.5": "out of range", "q_proj=NaN": "out of range", "q_proj=1e300": "out of range",
		`"q_proj"=two`: "no number"} {
		s := plainLoRA()
		s.Ranks = []string{entry}
		problems := s.Check(twoLayers)
		if len(problems) != 1 || !strings.Contains(problems[0].Found, want) {
			t.Errorf("%q: the problems are %v, want one with %q", entry, problems, want)
		}
	}
}

// TestSettingsOfPEFT gives each key of PEFT's LoraConfig another value than its default. Those that
// change what the adapter computes are refused by name.
func TestSettingsOfPEFT(t *testing.T) {
	s, golden := plainLoRA(), readPEFT(t)
	list := s.Of(twoLayers)
	defaults := golden.Defaults
	defaults["r"], defaults["lora_alpha"] = s.Rank, s.Alpha
	harmless := map[string]any{"task_type": "CAUSAL_LM", "auto_mapping": map[string]any{"a": 1},
		"peft_version": "1.0", "base_model_name_or_path": "a/b", "revision": "main",
		"inference_mode": true, "lora_dropout": 0.5, "init_lora_weights": "eva",
		"eva_config": map[string]any{"rho": 2}, "layers_pattern": "layers"}
	refused := map[string]any{"peft_type": "IA3", "task_type": "SEQ_CLS", "bias": "all",
		"init_lora_weights": "pissa", "megatron_core": "x", "qalora_group_size": 8, "r": 8,
		"lora_alpha": 9, "use_rslora": true, "rank_pattern": map[string]any{"q_proj": 2},
		"alpha_pattern": map[string]any{"q_proj": 2}, "target_modules": []string{"v_proj"},
		"exclude_modules": ".*q_proj", "layers_to_transform": 0,
		"alora_invocation_tokens": []int{1}, "layer_replication": [][]int{{1, 2}, {0, 1}}}
	// What is named in place of the key.
	named := map[string]string{"r": "the rank 8", "lora_alpha": "alpha = 9",
		"use_rslora": "rslora = true"}
	for key, value := range defaults {
		if _, ok := harmless[key]; !ok && refused[key] == nil {
			refused[key] = "other"
			if value == false {
				refused[key] = true
			}
		}
	}
	refused["key_of_a_later_version"] = 7
	harmless["other_key_of_a_later_version"] = nil
	load := func(key string, value any) error {
		config := maps.Clone(defaults)
		config[key] = value
		_, _, err := s.Load(1, writePEFT(t, config, lora.TensorsOf(list)), list)
		return err
	}
	for key, value := range harmless {
		if err := load(key, value); err != nil {
			t.Errorf("%s = %v: %v", key, value, err)
		}
	}
	for key, value := range refused {
		err := load(key, value)
		want := named[key]
		if want == "" {
			want = key
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %v: the error is %v, want one with %q", key, value, err, want)
		}
	}
}

// TestModulesOfPEFT checks which factors have to be there: PEFT does not use factors of modules
// that its configuration leaves out.
func TestModulesOfPEFT(t *testing.T) {
	s, config := plainLoRA(), readPEFT(t).Defaults
	config["r"], config["lora_alpha"] = s.Rank, s.Alpha
	list := s.Of(twoLayers)
	all := lora.TensorsOf(list)
	without := func(drop func(lora.Tensor) bool) []lora.Tensor {
		return slices.DeleteFunc(slices.Clone(all), drop)
	}
	const q, up = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"
	few := without(func(x lora.Tensor) bool { return x.Module != q && x.Module != up })
	const prefix = "base_model.model." + q
	withoutTensor := func(name string) []lora.Tensor {
		return without(func(x lora.Tensor) bool { return x.Name == prefix+name })
	}
	unknown := append(slices.Clone(few), lora.Tensor{Name: "x", Rows: []int{0}, Columns: 1})
	type keys = map[string]any
	for name, of := range map[string]struct {
		change  keys
		tensors []lora.Tensor
		missing int
		err     string
	}{
		"all":             {nil, all, 0, ""},
		"no module":       {nil, nil, 0, "has no factors"},
		"no A":            {nil, withoutTensor(".lora_A.weight"), 0, ".lora_B.weight without " + prefix},
		"no B":            {nil, withoutTensor(".lora_B.weight"), 0, ".lora_A.weight without " + prefix},
		"two modules":     {nil, few, 12, ""},
		"unknown module":  {nil, unknown, 0, "x: not adapters"},
		"all linear":      {keys{"target_modules": "all-linear"}, all, 0, ""},
		"expression":      {keys{"target_modules": `.*(?:q|up)_proj`}, few, 12, ""},
		"no expression":   {keys{"target_modules": `(?!x)`}, few, 0, "target_modules"},
		"no targets":      {keys{"target_modules": nil}, few, 0, "does not use the factors of " + q},
		"other targets":   {keys{"target_modules": "q_proj"}, few, 0, "does not use the factors of " + q},
		"whole path":      {keys{"target_modules": []string{q, "layers.1.mlp.up_proj"}}, few, 12, ""},
		"excluded others": {keys{"exclude_modules": []string{"layers.1.self_attn.q_proj"}}, few, 12, ""},
		"excluded":        {keys{"exclude_modules": []string{"layers.1.mlp.up_proj"}}, few, 0, up},
		"layers":          {keys{"layers_to_transform": []int{1, 0}}, few, 12, ""},
		"other layers": {keys{"layers_to_transform": []int{0}, "layers_pattern": "layers"}, few, 0,
			up},
		"other pattern": {keys{"layers_to_transform": 0, "layers_pattern": []string{"h"}}, few, 0, q},
	} {
		changed := maps.Clone(config)
		maps.Copy(changed, of.change)
		_, missing, err := s.Load(1, writePEFT(t, changed, of.tensors), list)
		if (err == nil) != (of.err == "") || err != nil && !strings.Contains(err.Error(), of.err) ||
			len(missing) != of.missing {
			t.Errorf("%s: missing %d, error %v; want %d, %q", name, len(missing), err, of.missing, of.err)
		}
	}
}

// TestNumbersOfPatterns checks that numbers are written as JSON has them, and ranks as integers.
func TestNumbersOfPatterns(t *testing.T) {
	text, err := json.Marshal(lora.PEFTConfig{Ranks: []string{"q_proj=1e1", "v_proj=+4"},
		Alphas: []string{"q_proj=.5"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"q_proj":10,`, `"v_proj":4}`, `"q_proj":0.5}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
}
