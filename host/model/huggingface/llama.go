package huggingface

import (
	"github.com/cage-qat/cage/host/model/architecture"
)

// llamaFamily are Llama 2, 3 and what is built like them: TinyLlama, SmolLM.
var llamaFamily = family{architecture: "LlamaForCausalLM", modelType: "llama", kind: architecture.KindLlama, tensors: llamaTensors, window: noWindow}

// mistralFamily are the models of Mistral AI that are Llamas as long as their window of attention is no
// shorter than the sequences.
var mistralFamily = family{architecture: "MistralForCausalLM", modelType: "mistral", kind: architecture.KindLlama, tensors: llamaTensors, window: mistralWindow}

// llamaTensors: post_attention_layernorm stands before the feed-forward layer.
var llamaTensors = inAll.with(table{
	"layers.*.attn_norm": {plain("model.layers.*.input_layernorm.weight")},
	"layers.*.mlp_norm":  {plain("model.layers.*.post_attention_layernorm.weight")},
})

// mistralWindow reads the window; where the key is absent, transformers takes 4096.
func mistralWindow(k *keys) int {
	if _, some := k.values["sliding_window"]; !some {
		return 4096
	}
	return k.size("sliding_window", mostPositions)
}
