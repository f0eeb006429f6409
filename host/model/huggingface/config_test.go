package huggingface_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestRefuse checks that every configuration of the golden file is refused with the key in the
// message.
func TestRefuse(t *testing.T) {
	text, err := os.ReadFile("testdata/refuse.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Key, Reason string
			Config      jsontext.Value
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 12 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		_, err := huggingface.ParseConfig(c.Config, 0)
		fault, ok := errors.AsType[*huggingface.Error](err)
		if !ok {
			t.Errorf("%s: error %v", c.Reason, err)
			continue
		}
		for _, f := range fault.Faults {
			if !strings.HasPrefix(f, c.Key) {
				t.Errorf("%s: fault %q, want one about %s", c.Reason, f, c.Key)
			}
		}
	}
}

// sound returns a valid configuration, in which tests replace entries.
func sound() map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 64,
		"num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 96, "vocab_size": 160, "rms_norm_eps": 1e-5,
	}
}

func parse(t testing.TB, change map[string]any, context int) (*huggingface.Config, error) {
	t.Helper()
	entries := sound()
	for key, value := range change {
		entries[key] = value
		if value == "absent" {
			delete(entries, key)
		}
	}
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return huggingface.ParseConfig(text, context)
}

// TestConfig checks the settings of valid configurations. Absent keys have the defaults of
// transformers.
func TestConfig(t *testing.T) {
	want := &huggingface.Config{
		Architecture: "LlamaForCausalLM", MaxPositions: 2048,
		Settings: architecture.Settings{Kind: "llama", Layers: 2, Width: 64, Heads: 4, KVHeads: 4,
			HeadSize: 16, Hidden: 96, Vocab: 160, NormEps: 1e-5, Head: "own",
			RopeTheta: 10000, RopePairs: architecture.Interleaved, RopeScaling: architecture.ScalingLlama3,
			RopeFactor: 1, RopeLow: 1, RopeHigh: 4, RopeOriginal: 8192, InitStd: 0.02},
	}
	type change = map[string]any
	for name, test := range map[string]struct {
		change  change
		context int
		expect  func(*huggingface.Config)
	}{
		"only what must be there": {change{}, 0, func(*huggingface.Config) {}},
		"scaling of nulls": {change{"rope_scaling": change{"factor": nil}}, 0,
			func(*huggingface.Config) {}},
		"null": {change{"num_key_value_heads": nil, "rope_scaling": nil,
			"head_dim": nil, "quantization_config": nil, "pad_token_id": nil}, 0,
			func(*huggingface.Config) {}},
		"theta in rope_parameters": {
			change{"rope_parameters": change{"rope_type": "default", "rope_theta": 5e5}}, 0,
			func(c *huggingface.Config) {
				c.Settings.RopeTheta = 5e5
			}},
		"both generations that agree": {
			change{"rope_theta": 500000, "rope_scaling": change{"type": "default"},
				"rope_parameters": change{"rope_theta": 5e5}}, 0,
			func(c *huggingface.Config) { c.Settings.RopeTheta = 5e5 }},
		"llama3 by the old name of the key": {
			change{"rope_scaling": change{"type": "llama3", "factor": 8, "low_freq_factor": 1,
				"high_freq_factor": 4.0, "original_max_position_embeddings": 512}}, 0,
			func(c *huggingface.Config) { c.Settings.RopeFactor, c.Settings.RopeOriginal = 8, 512 }},
		"one id": {change{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": -1}, 0,
			func(c *huggingface.Config) {
				c.Tokens = huggingface.Tokens{Begin: []int32{1}, End: []int32{2}, Pad: []int32{}}
			}},
		"several ids": {change{"eos_token_id": []int{2, 159}}, 0,
			func(c *huggingface.Config) { c.Tokens.End = []int32{2, 159} }},
		"dropout": {change{"attention_dropout": 0.1}, 0, func(c *huggingface.Config) {
			c.Warnings = []string{"attention_dropout is 0.1, but is ignored"}
		}},
		"a factor of scores": {change{"architectures": []string{"Gemma3ForCausalLM"},
			"model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 21,
			"tie_word_embeddings": false, "hidden_activation": "gelu_pytorch_tanh"}, 0,
			func(c *huggingface.Config) {
				c.Architecture, c.Settings.Kind, c.Settings.RopePairs = "Gemma3ForCausalLM", "gemma3",
					architecture.HalfSplit
				c.Settings.AttentionMultiplier, c.Settings.RopeTheta = 1/math.Sqrt(21), 1e6
				c.Settings.Window, c.MaxPositions = 4096, 131072
			}},
		"a window of 4096": {change{"architectures": []string{"MistralForCausalLM"},
			"model_type": "mistral", "num_key_value_heads": 4}, 0, func(c *huggingface.Config) {
			c.Architecture, c.Settings.Window, c.MaxPositions = "MistralForCausalLM", 4096, 131072
		}},
		"a window that is shorter than sequences": {
			change{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral",
				"num_key_value_heads": 4, "sliding_window": 64}, 128,
			func(c *huggingface.Config) {
				c.Architecture, c.Settings.Window, c.MaxPositions = "MistralForCausalLM", 64, 131072
			}},
		"a window that is switched off": {change{"architectures": []string{"Qwen3ForCausalLM"},
			"model_type": "qwen3", "num_key_value_heads": 4, "head_dim": 32, "use_sliding_window": false,
			"sliding_window": 64}, 0,
			func(c *huggingface.Config) {
				c.MaxPositions = 32768
				c.Architecture, c.Settings.Kind, c.Settings.HeadSize, c.Settings.RopePairs = "Qwen3ForCausalLM",
					"qwen3", 32, architecture.HalfSplit
			}},
	} {
		got, err := parse(t, test.change, test.context)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := *want
		test.expect(&c)
		if len(c.Tokens.Pad) == 0 && len(got.Tokens.Pad) == 0 {
			c.Tokens.Pad = got.Tokens.Pad
		}
		if diff := cmp.Diff(&c, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPublished checks that keys of published files that do not change the computation are
// accepted: those of SmolLM2, Qwen 2.5, Gemma 2, Llama 1, Unsloth, and all that transformers 4
// could write.
func TestPublished(t *testing.T) {
	const keys = `"_attn_implementation_autoset": true, "_name_or_path": "a/b", "auto_map": {"AutoConfig": "x.Y"},
		"is_llama_config": true, "rope_interleaved": false, "transformers.js_config": {"kv_cache_dtype": {"q4": "float16"}},
		"max_window_layers": 21, "use_mrope": false, "use_sliding_window": false, "sliding_window": 131072,
		"cache_implementation": "hybrid", "max_sequence_length": 2048, "unsloth_fixed": true, "unsloth_version": "2025.1",
		"pretraining_tp": 1, "attention_dropout": 0.0, "partial_rotary_factor": 1.0, "initializer_range": 0.02,
		"add_cross_attention": false, "bad_words_ids": null, "begin_suppress_tokens": null, "chunk_size_feed_forward": 0,
		"cross_attention_hidden_size": null, "decoder_start_token_id": null, "diversity_penalty": 0.0, "do_sample": false,
		"early_stopping": false, "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": null,
		"finetuning_task": null, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_decoder": false,
		"is_encoder_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20,
		"min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1,
		"output_attentions": false, "output_hidden_states": false, "output_scores": false, "prefix": null,
		"problem_type": null, "pruned_heads": {}, "remove_invalid_values": false, "repetition_penalty": 1.0,
		"return_dict": true, "return_dict_in_generate": false, "sep_token_id": null, "suppress_tokens": null,
		"task_specific_params": null, "temperature": 1.0, "tf_legacy_loss": false, "tie_encoder_decoder": false,
		"tokenizer_class": null, "top_k": 50, "top_p": 1.0, "torch_dtype": "bfloat16", "torchscript": false,
		"transformers_version": "4.44.0", "typical_p": 1.0, "use_bfloat16": false, "use_cache": true`
	change := map[string]any{}
	if err := json.Unmarshal([]byte("{"+keys+"}"), &change); err != nil {
		t.Fatal(err)
	}
	if _, err := parse(t, change, 0); err != nil {
		t.Error(err)
	}
	// what changes it, although its value is that of an empty key
	for key, value := range map[string]any{"is_causal": false, "is_decoder": true,
		"use_sliding_window": true, "rope_interleaved": true,
		"per_layer_config": map[string]any{"0": 1}} {
		if _, err := parse(t, map[string]any{key: value}, 0); err == nil ||
			!strings.Contains(err.Error(), key+": found") {
			t.Errorf("%s = %v: %v", key, value, err)
		}
	}
}

// TestConfigFaults checks that one error names all keys with faults.
func TestConfigFaults(t *testing.T) {
	type change = map[string]any
	for name, test := range map[string]struct {
		change change
		keys   []string // how the faults begin
	}{
		"everything at once": {change{"hidden_act": "gelu", "num_hidden_layers": "absent",
			"vocab_size": 0, "rms_norm_eps": nil, "attention_bias": true, "future": change{"a": 1}},
			[]string{"attention_bias", "future", "hidden_act", "num_hidden_layers", "rms_norm_eps",
				"vocab_size"}},
		"nothing at all": {change{"architectures": "absent", "model_type": "absent",
			"hidden_size": "absent"}, []string{"architectures", "hidden_size"}},
		"no type": {change{"model_type": "absent"}, []string{"model_type"}},
		"generations that disagree": {
			change{"rope_theta": 1e4, "rope_parameters": change{"rope_theta": 5e5}},
			[]string{"rope_parameters.rope_theta"}},
		"a default that disagrees": {change{"rope_scaling": change{"type": "default"},
			"rope_parameters": change{"rope_theta": 5e5}}, []string{"rope_parameters.rope_theta"}},
		"scalings that disagree": {change{"rope_scaling": change{"type": "default"},
			"rope_parameters": change{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
				"high_freq_factor": 4, "original_max_position_embeddings": 512}},
			[]string{"rope_parameters.rope_type"}},
		"partial rotation, new key": {change{"rope_parameters": change{"partial_rotary_factor": 0.25}},
			[]string{"rope_parameters.partial_rotary_factor"}},
		"factors in the wrong order": {
			change{"rope_scaling": change{"type": "llama3", "factor": 8, "low_freq_factor": 4,
				"high_freq_factor": 1, "original_max_position_embeddings": 512}}, []string{"rope_scaling"}},
		"a factor below 1": {
			change{"rope_scaling": change{"type": "llama3", "factor": 0.5, "low_freq_factor": 1,
				"high_freq_factor": 4, "original_max_position_embeddings": 512}},
			[]string{"rope_scaling.factor"}},
		"a factor without a type": {change{"rope_scaling": change{"factor": 8.0}},
			[]string{"rope_scaling.factor"}},
		"a misspelt type": {
			change{"rope_parameters": change{"rope_typ": "llama3", "rope_theta": 5e5}},
			[]string{"rope_parameters.rope_typ"}},
		"scaling that is no object": {change{"rope_scaling": "yarn"}, []string{"rope_scaling"}},
		"heads of odd size":         {change{"hidden_size": 60}, []string{"num_attention_heads"}},
		"beyond what a run accepts": {change{"rms_norm_eps": 2e9, "rope_theta": 5e-44},
			[]string{"rms_norm_eps", "rope_theta"}},
		"a fraction": {change{"hidden_size": 64.5}, []string{"hidden_size"}},
		"very many layers": {change{"num_hidden_layers": 1 << 40},
			[]string{"num_hidden_layers"}},
		"an id outside":      {change{"eos_token_id": []int{2, 160}}, []string{"eos_token_id"}},
		"an id that is text": {change{"bos_token_id": "<s>"}, []string{"bos_token_id"}},
		"default heads of Qwen 3": {change{"architectures": []string{"Qwen3ForCausalLM"},
			"model_type": "qwen3"}, []string{"num_key_value_heads"}},
		"factors of Granite": {change{"architectures": []string{"GraniteForCausalLM"},
			"model_type": "granite", "logits_scaling": -1, "residual_multiplier": nil},
			[]string{"logits_scaling", "residual_multiplier"}},
		"experts": {change{"architectures": []string{"Qwen3MoeForCausalLM"}},
			[]string{"architectures"}},
		"a window of a Qwen3": {change{"architectures": []string{"Qwen3ForCausalLM"},
			"model_type": "qwen3", "num_key_value_heads": 4, "head_dim": 32, "use_sliding_window": true,
			"sliding_window": 64},
			[]string{"sliding_window"}},
	} {
		_, err := parse(t, test.change, 0)
		fault, ok := errors.AsType[*huggingface.Error](err)
		if !ok {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		same := len(fault.Faults) == len(test.keys)
		for i := range min(len(fault.Faults), len(test.keys)) {
			same = same && strings.HasPrefix(fault.Faults[i], test.keys[i]+": ")
		}
		if !same {
			t.Errorf("%s: faults %q, want those of %q", name, fault.Faults, test.keys)
		}
	}
	_, err := parse(t, change{"architectures": []string{"Qwen3MoeForCausalLM"}}, 0)
	for _, want := range []string{"which would need mixtures of experts, want one of",
		"docs/guide/fine-tuning.md"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("experts: error %v, want %q", err, want)
		}
	}
	for _, text := range []string{"", "[]", "null", "{", `{"a":1,"a":2}`, "{} {}"} {
		if _, err := huggingface.ParseConfig([]byte(text), 0); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestStopIDs checks that the stop tokens of both configuration files are combined.
func TestStopIDs(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/llama32")); err != nil {
		t.Fatal(err)
	}
	write := func(text string) (*huggingface.Config, error) {
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
		return huggingface.ReadConfig(vfs.At(dir), 0)
	}
	c, err := write(`{"eos_token_id": [324, 7], "temperature": 0.6}`)
	if err != nil || !slices.Equal(c.Tokens.End, []int32{321, 324, 7}) {
		t.Errorf("%v, error %v", c, err)
	}
	if _, err := write(`{"eos_token_id": 328}`); err == nil ||
		!strings.Contains(err.Error(), "generation_config.json") {
		t.Errorf("an id outside: error %v", err)
	}
	if _, err := write(`[]`); err == nil {
		t.Error("a list is accepted")
	}
}

// FuzzConfig checks that no text causes a panic, and that accepted settings make a model.
func FuzzConfig(f *testing.F) {
	for _, name := range goldenModels {
		text, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"rope_scaling":{"type":"llama3"},"rope_parameters":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := huggingface.ParseConfig(text, 0)
		if err != nil {
			if _, ok := errors.AsType[*huggingface.Error](err); !ok {
				t.Fatal(err)
			}
			return
		}
		if problems := c.Settings.Check(); len(problems) > 0 {
			t.Fatal(problems)
		}
		if _, err := model.New(c.Settings, model.Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestGemmaActivation checks that "gelu" means the approximation by tanh in Gemma 1, as in
// transformers, and that others are refused.
func TestGemmaActivation(t *testing.T) {
	_, text := readConfig(t, "gemma")
	for keys, ok := range map[string]bool{
		`"hidden_act": "gelu"`:                              true,
		`"hidden_act": "gelu", "hidden_activation": null`:   true,
		`"hidden_activation": "gelu_pytorch_tanh"`:          true,
		`"hidden_act": "gelu", "hidden_activation": "gelu"`: false,
		`"hidden_act": "silu"`:                              false,
		`"hidden_act": 1`:                                   false,
	} {
		changed := strings.Replace(string(text), `"hidden_act": "gelu_pytorch_tanh"`, keys, 1)
		c, err := huggingface.ParseConfig([]byte(changed), 0)
		if ok != (err == nil) || ok && !c.Settings.GELU() || !ok && !strings.Contains(err.Error(),
			`want gelu_pytorch_tanh`) {
			t.Errorf("%s: error %v", keys, err)
		}
	}
}
