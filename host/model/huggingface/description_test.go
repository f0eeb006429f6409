package huggingface_test

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

type object = map[string]any

// checkKeys compares objects key by key. want holds the text of each value that differs, "" for a
// removed key.
func checkKeys(t *testing.T, what string, before, after []byte, want map[string]string) {
	t.Helper()
	var a, b map[string]jsontext.Value
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, value := range b {
		now, was := compact(value), compact(a[key])
		if now != was {
			got[key] = now
		}
	}
	for key := range a {
		if _, ok := b[key]; !ok {
			got[key] = ""
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact() // leaves an absent value as it is
	return string(v)
}

// TestDescriptionFor checks that exactly the keys that training has changed are rewritten, and that
// those are added which the file leaves to a reader's defaults, or has for one version of
// transformers only. All other values keep their text.
func TestDescriptionFor(t *testing.T) {
	const common = `"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 96, "vocab_size": 160, "rms_norm_eps": 1e-05, "max_position_embeddings": 131072, "sliding_window": 4096, "bos_token_id": 1,
		"eos_token_id": 2, "initializer_range": 2.0E-2, "num_key_value_heads": 4, "head_dim": 16, "hidden_act": "silu",
		"attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false, "task_specific_params": {"z": [1e-05, 3.0], "a": "ü"}, "torch_dtype": "bfloat16"`
	const version4 = `{` + common + `, "rope_theta": 500000.0, "rope_scaling": null}`
	const version5 = `{` + common +
		`, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}`
	const both = `{` + common +
		`, "rope_theta": 500000.0, "rope_scaling": null, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}`
	const plain = `{"rope_theta":500000,"rope_type":"default"}`
	const generation = `{"eos_token_id": [2, 5], "temperature": 0.60, "top_p": 0.9, "do_sample": true}`
	const scaled = `{"factor":8,"high_freq_factor":4,"low_freq_factor":1,"original_max_position_embeddings":1024,"rope_type":"llama3"}`
	const parameters = `{"factor":8,"high_freq_factor":4,"low_freq_factor":1,"original_max_position_embeddings":1024,"rope_theta":500000,"rope_type":"llama3"}`
	type texts = map[string]string
	scale := func(s *architecture.Settings) { s.RopeFactor, s.RopeOriginal = 8, 1024 }
	for name, c := range map[string]struct {
		config             string
		change             func(*architecture.Settings)
		learned            huggingface.Tokens
		config2, generated texts
	}{
		"nothing": {both, func(*architecture.Settings) {}, huggingface.Tokens{},
			texts{}, texts{}},
		"nothing, version 4": {version4, func(*architecture.Settings) {}, huggingface.Tokens{},
			texts{"rope_parameters": plain}, texts{}},
		"a shorter context": {version5, func(s *architecture.Settings) { s.Context = 64 },
			huggingface.Tokens{Begin: []int32{1}, End: []int32{5}},
			texts{"rope_theta": "500000", "rope_scaling": "null"}, texts{}},
		"more tokens": {both, func(s *architecture.Settings) { s.Vocab = 163 },
			huggingface.Tokens{}, texts{"vocab_size": "163"}, texts{}},
		"wavelengths, version 4": {version4, scale, huggingface.Tokens{},
			texts{"rope_scaling": scaled, "rope_parameters": parameters}, texts{}},
		"wavelengths, version 5": {version5, scale, huggingface.Tokens{},
			texts{"rope_theta": "500000", "rope_scaling": scaled, "rope_parameters": parameters}, texts{}},
		"wavelengths, both": {both, scale, huggingface.Tokens{},
			texts{"rope_scaling": scaled, "rope_parameters": parameters}, texts{}},
		"another end": {both, func(*architecture.Settings) {},
			huggingface.Tokens{End: []int32{2, 9}}, texts{"eos_token_id": "[2,9]"},
			texts{"eos_token_id": "[2,5,9]"}},
		"another begin": {both, func(*architecture.Settings) {},
			huggingface.Tokens{Begin: []int32{7}}, texts{"bos_token_id": "7"}, texts{"bos_token_id": "7"}},
		"another window": {both, func(s *architecture.Settings) { s.Window = 16 },
			huggingface.Tokens{}, texts{"sliding_window": "16"}, texts{}},
		"no window": {both, func(s *architecture.Settings) { s.Window = 0 },
			huggingface.Tokens{}, texts{"sliding_window": "null"}, texts{}},
	} {
		s := architecture.Settings{Kind: "llama", Layers: 2, Width: 64, Heads: 4, Hidden: 96, Vocab: 160,
			NormEps: 1e-5, Head: "own", RopeTheta: 500000,
			RopeScaling: architecture.ScalingLlama3, RopeFactor: 1, RopeLow: 1, RopeHigh: 4,
			RopeOriginal: 8192, InitStd: 0.02, Context: 2048, Window: 4096}
		c.change(&s)
		before := huggingface.Description{Config: []byte(c.config), Generation: []byte(generation)}
		after, err := before.For(s, c.learned)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkKeys(t, name, before.Config, after.Config, c.config2)
		checkKeys(t, name, before.Generation, after.Generation, c.generated)
		again, err := after.For(s, c.learned)
		if err != nil || !bytes.Equal(again.Config, after.Config) ||
			!bytes.Equal(again.Generation, after.Generation) {
			t.Errorf("%s: what was changed changes once more, error %v", name, err)
		}
	}
}

// TestChangedModel checks, for models of all families, that no value of the description is changed
// if nothing was changed, and that a changed window or changed positions are read again from the
// new description.
func TestChangedModel(t *testing.T) {
	for _, name := range goldenModels {
		d, err := huggingface.ReadDescription(vfs.At(filepath.Join("testdata", name)))
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(*architecture.Settings){
			"nothing": func(*architecture.Settings) {},
			"theta":   func(s *architecture.Settings) { s.RopeTheta = 12345 },
			"factor": func(s *architecture.Settings) {
				s.RopeScaling, s.RopeFactor = architecture.ScalingLinear, 4
			},
			"window": func(s *architecture.Settings) { s.Window = 5 },
			"all":    func(s *architecture.Settings) { s.Window = 0 },
		} {
			const context = 32
			c, err := huggingface.ParseConfig(d.Config, context)
			if err != nil {
				t.Fatal(err)
			}
			s := c.Settings
			if change(&s); !s.Windowed() {
				s.Window = 0
			}
			s.Context = context
			after, err := d.For(s, huggingface.Tokens{})
			if err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
				continue
			}
			if what == "nothing" {
				var before, now object
				if err := errors.Join(json.Unmarshal(d.Config, &before),
					json.Unmarshal(after.Config, &now)); err != nil {
					t.Fatal(err)
				}
				for _, list := range []object{before, now} {
					maps.DeleteFunc(list, func(key string, _ any) bool { // scaling may have defaults within
						_, old := before[key]
						return !old || key == "rope_scaling" || key == "rope_parameters"
					})
				}
				if diff := cmp.Diff(before, now); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			c, err = huggingface.ParseConfig(after.Config, context)
			if err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
				continue
			}
			if s.RopeScaling == architecture.ScalingLinear { // has no other parameters
				for _, x := range []*architecture.Settings{&s, &c.Settings} {
					x.RopeLow, x.RopeHigh, x.RopeOriginal = 0, 0, 0
				}
			}
			if s.Window == 0 && c.Settings.Window >= context {
				c.Settings.Window = 0
			}
			s.Context = 0
			if diff := cmp.Diff(s, c.Settings); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, what, diff)
			}
		}
	}
}

// TestTiedByDefault checks that a missing tie_word_embeddings means what it means in the classes of
// transformers.
func TestTiedByDefault(t *testing.T) {
	for name, want := range map[string]string{"gemma": "tied", "gemma2": "tied", "gemma3": "tied",
		"smollm3": "tied", "granite": "own", "llama32": "own", "mistral": "own", "ministral": "own",
		"olmo2": "own", "olmo3": "own", "qwen2": "own", "qwen3": "own"} {
		_, text := readConfig(t, name)
		var keys object
		if err := json.Unmarshal(text, &keys); err != nil {
			t.Fatal(err)
		}
		delete(keys, "tie_word_embeddings")
		text, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := huggingface.ParseConfig(text, 0); err != nil || c.Settings.Head != want {
			t.Errorf("%s: the head is %q, want %q, error %v", name, c.Settings.Head, want, err)
		}
	}
}

// TestPattern checks that a Gemma 3 that has another layer without a window than the sixth is
// refused.
func TestPattern(t *testing.T) {
	_, text := readConfig(t, "gemma3")
	for _, key := range []string{"sliding_window_pattern", "_sliding_window_pattern"} {
		var keys object
		if err := json.Unmarshal(text, &keys); err != nil {
			t.Fatal(err)
		}
		delete(keys, "layer_types")
		for pattern, ok := range map[int]bool{2: false, 6: true} {
			keys[key] = pattern
			text, err := json.Marshal(keys)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := huggingface.ParseConfig(text, 0); (err == nil) != ok {
				t.Errorf("%s = %d: %v", key, pattern, err)
			}
		}
	}
}

// TestLongerContext checks that a model trained with sequences longer than its number of positions
// has more positions afterwards.
func TestLongerContext(t *testing.T) {
	c, text := readConfig(t, "llama32")
	s := c.Settings
	s.Context = 4096
	d, err := huggingface.Description{Config: text}.For(s, huggingface.Tokens{End: []int32{9}})
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]jsontext.Value
	if err := json.Unmarshal(d.Config, &keys); err != nil ||
		compact(keys["max_position_embeddings"]) != "4096" ||
		compact(keys["eos_token_id"]) != "[321,324,9]" {
		t.Errorf("error %v, config.json\n%s", err, d.Config)
	}
	if d.Generation != nil {
		t.Errorf("there is a generation_config.json now: %s", d.Generation)
	}
}

func readConfig(t *testing.T, name string) (*huggingface.Config, []byte) {
	t.Helper()
	d, err := huggingface.ReadDescription(vfs.At(filepath.Join("testdata", name)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := huggingface.ParseConfig(d.Config, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c, d.Config
}

// TestOtherModel checks that the description of another model is refused and the error names the
// key.
func TestOtherModel(t *testing.T) {
	c, text := readConfig(t, "llama32")
	for key, change := range map[string]func(*architecture.Settings){
		"model_type":          func(s *architecture.Settings) { s.Kind = architecture.KindQwen3 },
		"num_hidden_layers":   func(s *architecture.Settings) { s.Layers++ },
		"tie_word_embeddings": func(s *architecture.Settings) { s.Head = "own" },
		"vocab_size":          func(s *architecture.Settings) { s.Vocab-- },
	} {
		s := c.Settings
		change(&s)
		_, err := huggingface.Description{Config: text}.For(s, huggingface.Tokens{})
		if err == nil || !strings.Contains(err.Error(),
			"config.json cannot be used:\n  "+key+": found ") {
			t.Errorf("%s: error %v", key, err)
		}
	}
	for _, d := range []huggingface.Description{{Config: []byte(`{`)},
		{Config: text, Generation: []byte(`[]`)}, {Config: text, Generation: []byte(`{"a":1,"a":2}`)}} {
		if _, err := d.For(c.Settings, huggingface.Tokens{}); err == nil {
			t.Errorf("%s, %s is accepted", d.Config, d.Generation)
		}
	}
}

// TestStored checks that the type of the weights has the key of the file's version of transformers,
// and that keys of another quantization are removed.
func TestStored(t *testing.T) {
	for before, want := range map[string]map[string]string{
		`{"torch_dtype": "bfloat16", "a": 1.0}`: {"torch_dtype": `"float16"`},
		`{"dtype": "bfloat16"}`:                 {"dtype": `"float16"`},
		`{"dtype": "float16", "torch_dtype": "bfloat16", "quantization_config": {"bits": 4}, "quantization": {"bits": 4}, "compression_config": {}}`: {
			"torch_dtype": `"float16"`, "quantization_config": "", "quantization": "",
			"compression_config": ""},
		`{"auto_map": {"AutoModel": "a.B"}}`: {"torch_dtype": `"float16"`, "auto_map": ""},
	} {
		after, err := huggingface.Stored([]byte(before), safetensors.F16, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkKeys(t, before, []byte(before), after, want)
	}
	after, err := huggingface.Stored([]byte(`{"quantization_config": {"bits": 4}}`), safetensors.F16,
		object{"quantization_config": object{"format": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	checkKeys(t, "packed", []byte(`{}`), after,
		map[string]string{"torch_dtype": `"float16"`, "quantization_config": `{"format":"x"}`})
}

// TestLargeDescription checks that a huge file is refused instead of read into memory.
func TestLargeDescription(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "generation_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 34); err != nil {
		t.Skip(err) // no sparse files
	}
	f.Close()
	if _, err := huggingface.ReadDescription(vfs.At(dir)); err == nil ||
		!strings.Contains(err.Error(), "too large") {
		t.Errorf("error %v", err)
	}
}

// TestCapsAreDecimal checks that caps have a decimal point: transformers refuses integers.
func TestCapsAreDecimal(t *testing.T) {
	s := architecture.Settings{Kind: architecture.KindGemma2, Layers: 1, Width: 64, Heads: 4,
		KVHeads: 2, Hidden: 96, Vocab: 8,
		Head: "tied", ScoreCap: 50, LogitCap: 30.5}
	c := huggingface.Config{Settings: s, MaxPositions: 16}
	d, err := c.Describe()
	if text := string(d.Config); err != nil ||
		!strings.Contains(text, `"attn_logit_softcapping": 50.0,`) ||
		!strings.Contains(text, `"final_logit_softcapping": 30.5,`) {
		t.Errorf("error %v, config.json\n%s", err, text)
	}
}
