package huggingface

import (
	"github.com/cage-qat/cage/host/model/architecture"
)

// olmo2Family are the models of OLMo 2. Norms stand behind the layers: post_attention_layernorm behind attention,
// where a Llama has another norm of that name.
var olmo2Family = family{architecture: "Olmo2ForCausalLM", modelType: "olmo2", kind: architecture.KindOLMo2, window: noWindow,
	tensors: inAll.with(table{
		"layers.*.attn.q_norm": {turned("model.layers.*.self_attn.q_norm.weight")},
		"layers.*.attn.k_norm": {turned("model.layers.*.self_attn.k_norm.weight")},
		"layers.*.attn_norm":   {plain("model.layers.*.post_attention_layernorm.weight")},
		"layers.*.mlp_norm":    {plain("model.layers.*.post_feedforward_layernorm.weight")},
	})}
