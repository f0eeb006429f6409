package huggingface_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/huggingface"
)

// TestMinistral checks that Ministral 8B (2410), which is published as a Mistral whose heads are
// not as wide as its width says, is read, and that what later models would need is named.
func TestMinistral(t *testing.T) {
	const config = `{"architectures": ["MistralForCausalLM"], "model_type": "mistral",
		"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
		"hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
		"intermediate_size": 12288, "max_position_embeddings": 32768, "num_attention_heads": 32,
		"num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
		"rope_theta": 100000000.0, "sliding_window": 32768, "tie_word_embeddings": false,
		"torch_dtype": "bfloat16", "transformers_version": "4.46.0", "use_cache": true,
		"vocab_size": 131072}`
	c, err := huggingface.ParseConfig([]byte(config), 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Settings; s.Window != 32768 || s.HeadSize != 128 || s.RopeTheta != 1e8 {
		t.Errorf("the settings are %+v", s)
	}
	for name, want := range map[string]string{"Ministral3ForCausalLM": "scaled by their positions",
		"Mistral3ForConditionalGeneration": "in Ministral 3 queries that are scaled",
		"Gemma4ForCausalLM":                "layers that share keys and values"} {
		text := strings.Replace(config, "MistralForCausalLM", name, 1)
		if _, err := huggingface.ParseConfig([]byte(text), 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, want)
		}
	}
}

// TestLayersThatDiffer checks that windows that only some layers have are read where sequences are
// too short for them, and stay in the description of the model that is trained.
func TestLayersThatDiffer(t *testing.T) {
	const full, sliding = `"full_attention"`, `"sliding_attention"`
	const common = `"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 96, "rms_norm_eps": 1e-6,
		"max_position_embeddings": 64, "head_dim": 16, "sliding_window": 32, "layer_types": [`
	for _, c := range []struct {
		model, types     string
		context          int
		window, untilNow int
		fault            string
	}{
		{"Ministral", full + "," + sliding, 32, 0, 32, ""},
		{"Ministral", full + "," + sliding, 33, 0, 0, "sliding_window: 32, but"},
		{"Ministral", sliding + "," + sliding, 33, 32, 0, ""},
		{"Ministral", full + "," + full, 33, 0, 0, ""},
		{"Ministral", full, 32, 0, 0, "layer_types: "},
		{"Ministral", full + `,"chunked_attention"`, 32, 0, 0, "layer_types: "},
		{"Qwen2", full + "," + sliding, 32, 0, 32, ""},
		{"Qwen2", full + "," + sliding, 33, 0, 0, "sliding_window: 32, but"},
		{"Mistral", full + "," + full, 33, 0, 0, "sliding_window: 32, but"},
	} {
		text := `{"architectures": ["` + c.model + `ForCausalLM"], "use_sliding_window": true,
			"model_type": "` + strings.ToLower(c.model) + `", ` + common + c.types + "]}"
		if c.model != "Qwen2" {
			text = strings.Replace(text, `"use_sliding_window": true,`, "", 1)
		}
		got, err := huggingface.ParseConfig([]byte(text), c.context)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s %s: the error is %v, want one with %q", c.model, c.types, err, c.fault)
			}
			continue
		}
		if err != nil || got.Settings.Window != c.window || got.OtherWindow != c.untilNow {
			t.Errorf("%s %s: error %v, %+v", c.model, c.types, err, got)
			continue
		}
		s := got.Settings
		s.Context = c.context
		d, err := huggingface.Description{Config: []byte(text)}.For(s, huggingface.Tokens{})
		if err != nil || !strings.Contains(string(d.Config), c.model+"ForCausalLM") {
			t.Errorf("%s %s: error %v, %s", c.model, c.types, err, d.Config)
		}
		if again, err := huggingface.ParseConfig(d.Config, c.context); err != nil ||
			!cmp.Equal(again.Settings, got.Settings) || again.OtherWindow != got.OtherWindow {
			t.Errorf("%s %s: error %v, %+v", c.model, c.types, err, again)
		}
	}
}

// TestPhi4Mini checks that the refusal of Phi-4-mini names all that it would need, by its
// published keys.
func TestPhi4Mini(t *testing.T) {
	_, err := huggingface.ParseConfig([]byte(`{"architectures": ["Phi3ForCausalLM"],
		"attention_bias": false, "attention_dropout": 0.0, "embd_pdrop": 0.0, "full_attn_mod": 1,
		"hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192, "lm_head_bias": false,
		"max_position_embeddings": 131072, "model_type": "phi3", "num_attention_heads": 24,
		"num_hidden_layers": 32, "num_key_value_heads": 8, "partial_rotary_factor": 0.75,
		"resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling":
		{"long_factor": [1, 1.1], "short_factor": [1.0, 1.0], "type": "longrope"},
		"tie_word_embeddings": true, "vocab_size": 200064}`), 0)
	if err == nil {
		t.Fatal("it is read")
	}
	for _, want := range []string{"fused projections (qkv_proj, gate_up_proj)",
		"partial_rotary_factor: found 0.75", `rope_scaling.type: found "longrope"`, "full_attn_mod"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
