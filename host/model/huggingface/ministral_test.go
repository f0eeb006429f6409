package huggingface_test

import (
	"strings"
	"testing"

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
	for name, want := range map[string]string{"MinistralForCausalLM": "layer_types",
		"Ministral3ForCausalLM": "scaled by their positions"} {
		text := strings.Replace(config, "MistralForCausalLM", name, 1)
		if _, err := huggingface.ParseConfig([]byte(text), 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, want)
		}
	}
}
