package huggingface_test

import (
	"encoding/json/v2"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
)

// fieldsOf lists the fields of classes that change what is computed, by model_type, after those of
// all classes: transformers/models/*/configuration_*.py of transformers 5.23.0, and of 4.57, which
// reads rope_theta, rope_scaling, rope_local_base_freq and sliding_window_pattern.
var fieldsOf = map[string]string{
	"": "hidden_size num_hidden_layers intermediate_size num_attention_heads rms_norm_eps " +
		"vocab_size num_key_value_heads max_position_embeddings tie_word_embeddings head_dim " +
		"rope_theta rope_scaling rope_parameters",
	"llama":     "hidden_act attention_bias mlp_bias",
	"mistral":   "hidden_act sliding_window",
	"ministral": "hidden_act sliding_window layer_types",
	"granite": "hidden_act attention_bias mlp_bias embedding_multiplier logits_scaling " +
		"residual_multiplier attention_multiplier",
	"smollm3": "hidden_act attention_bias mlp_bias no_rope_layers no_rope_layer_interval " +
		"layer_types use_sliding_window",
	"olmo2": "hidden_act attention_bias",
	"olmo3": "hidden_act attention_bias layer_types sliding_window",
	"qwen2": "hidden_act layer_types use_sliding_window",
	"qwen3": "hidden_act attention_bias layer_types use_sliding_window",
	"gemma": "hidden_act attention_bias",
	"gemma2": "hidden_activation attention_bias query_pre_attn_scalar sliding_window layer_types " +
		"final_logit_softcapping attn_logit_softcapping",
	"gemma3_text": "hidden_activation attention_bias query_pre_attn_scalar sliding_window " +
		"layer_types final_logit_softcapping attn_logit_softcapping rope_local_base_freq " +
		"sliding_window_pattern",
}

// families returns a small model of each family.
func families() (list []architecture.Settings) {
	for _, kind := range append(architecture.Languages, "mistral") {
		s := architecture.Settings{Kind: kind, Layers: 6, Width: 64, Heads: 4, Vocab: 256, Context: 16,
			RopeTheta: 12345, RopeFactor: 1, NormEps: 0.0625}
		switch kind {
		case "mistral":
			s.Kind, s.Window = architecture.KindLlama, 5
		case architecture.KindGemma2:
			s.ScoreCap, s.LogitCap = 5, 3
		}
		s.FillIn()
		list = append(list, s)
	}
	return list
}

// described returns the config.json of a model: from scratch, or from a file that leaves out what
// it can.
func described(t *testing.T, s architecture.Settings, fromFile bool) (keys map[string]any) {
	t.Helper()
	d, err := (&huggingface.Config{Settings: s, MaxPositions: s.Context}).Describe()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(d.Config, &keys); err != nil || !fromFile {
		return keys
	}
	for _, key := range []string{"rope_scaling", "rope_theta", "rope_local_base_freq",
		"attention_bias", "mlp_bias", "layer_types", "sliding_window_pattern", "no_rope_layers",
		"use_sliding_window", "no_rope_layer_interval", "hidden_act"} {
		delete(keys, key)
	}
	if s.Kind == architecture.KindLlama && s.HeadSize*s.Heads == s.Width {
		delete(keys, "head_dim")
	}
	if d.Config, err = json.Marshal(keys); err != nil {
		t.Fatal(err)
	}
	if d, err = d.For(s, huggingface.Tokens{}); err != nil {
		t.Fatalf("%s: %v", s.Kind, err)
	}
	if err := json.Unmarshal(d.Config, &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestNothingByDefault checks that config.json has all that transformers would otherwise take from
// the defaults of a class.
func TestNothingByDefault(t *testing.T) {
	for _, s := range families() {
		for _, fromFile := range []bool{false, true} {
			config := described(t, s, fromFile)
			typ := config["model_type"].(string)
			for _, field := range strings.Fields(fieldsOf[""] + " " + fieldsOf[typ]) {
				if _, ok := config[field]; !ok || fieldsOf[typ] == "" {
					t.Errorf("%s, from a file: %t: there is no %s", typ, fromFile, field)
				}
			}
		}
	}
}

// TestComputedKeys checks the values of config.json for every setting that changes what a model
// computes, in every family that has it.
func TestComputedKeys(t *testing.T) {
	type keys = map[string]any
	scaled := func(rule architecture.Scaling, parameters keys) func(*architecture.Settings) keys {
		return func(s *architecture.Settings) keys {
			s.RopeScaling, s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = rule, 8, 2, 16, 64
			parameters["rope_type"], parameters["factor"] = string(rule), 8.0
			with := maps.Clone(parameters)
			with["rope_theta"] = 12345.0
			out := keys{"rope_scaling": parameters, "rope_parameters": with}
			local := keys{"rope_type": "default", "rope_theta": 12345.0}
			switch s.Kind {
			case architecture.KindGemma3:
				local["rope_theta"] = 1e4
				fallthrough
			case architecture.KindOLMo3:
				out["rope_parameters"] = keys{"full_attention": with, "sliding_attention": local}
			}
			return out
		}
	}
	const full, sliding = "full_attention", "sliding_attention"
	for name, change := range map[string]func(*architecture.Settings) keys{
		"plain": func(s *architecture.Settings) keys {
			return keys{"rope_theta": 12345.0, "rms_norm_eps": 0.0625, "rope_scaling": nil,
				"tie_word_embeddings": s.Head == "tied", "head_dim": 16.0}
		},
		"linear": scaled(architecture.ScalingLinear, keys{}),
		"llama3": scaled(architecture.ScalingLlama3, keys{"low_freq_factor": 2.0,
			"high_freq_factor": 16.0, "original_max_position_embeddings": 64.0}),
		"yarn": scaled(architecture.ScalingYaRN, keys{"beta_slow": 2.0, "beta_fast": 16.0,
			"original_max_position_embeddings": 64.0}),
		"tied": func(s *architecture.Settings) keys {
			s.Head = "tied"
			return keys{"tie_word_embeddings": true}
		},
		"head size": func(s *architecture.Settings) keys {
			s.HeadSize = 32
			return keys{"head_dim": 32.0}
		},
		"window": func(s *architecture.Settings) keys {
			if !s.Windowed() {
				return nil
			}
			s.Window = 5
			types := map[string][]any{
				architecture.KindGemma2: {sliding, full, sliding, full, sliding, full},
				architecture.KindGemma3: {sliding, sliding, sliding, sliding, sliding, full},
				architecture.KindOLMo3:  {sliding, sliding, sliding, full, sliding, sliding},
			}[s.Kind]
			if types == nil {
				return keys{"model_type": "mistral", "sliding_window": 5.0}
			}
			return keys{"sliding_window": 5.0, "layer_types": types}
		},
		"of the family": func(s *architecture.Settings) keys {
			switch s.Kind {
			case architecture.KindGranite:
				s.AttentionMultiplier, s.EmbeddingMultiplier, s.ResidualMultiplier, s.LogitsScaling =
					0.3, 3, 0.5, 2
				return keys{"attention_multiplier": 0.3, "embedding_multiplier": 3.0,
					"residual_multiplier": 0.5, "logits_scaling": 2.0}
			case architecture.KindSmolLM3:
				return keys{"no_rope_layers": []any{1.0, 1.0, 1.0, 0.0, 1.0, 1.0},
					"no_rope_layer_interval": 4.0}
			case architecture.KindGemma2:
				s.AttentionMultiplier = 0.2
				return keys{"query_pre_attn_scalar": 25.0, "attn_logit_softcapping": 5.0,
					"final_logit_softcapping": 3.0}
			case architecture.KindGemma3:
				s.AttentionMultiplier = 0.2
				return keys{"query_pre_attn_scalar": 25.0, "rope_local_base_freq": 1e4,
					"sliding_window_pattern": 6.0}
			}
			return nil
		},
	} {
		for _, s := range families() {
			want := change(&s)
			if want == nil {
				continue
			}
			for _, fromFile := range []bool{false, true} {
				config, got := described(t, s, fromFile), keys{}
				for key := range want {
					got[key] = config[key]
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s, from a file: %t (-want +got):\n%s", name, s.Kind, fromFile, diff)
				}
			}
		}
	}
}
