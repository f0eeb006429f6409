package huggingface

import (
	"github.com/cage-qat/cage/host/model/architecture"
)

// qwen3Family are the dense models of Qwen3: Llamas that normalize each head of queries and
// keys, and whose heads have a size of their own.
var qwen3Family = family{architecture: "Qwen3ForCausalLM", modelType: "qwen3", kind: architecture.KindQwen3, freeHeads: true, window: qwen3Window,
	tensors: llamaTensors.with(table{
		"layers.*.attn.q_norm": {turned("model.layers.*.self_attn.q_norm.weight")},
		"layers.*.attn.k_norm": {turned("model.layers.*.self_attn.k_norm.weight")},
	})}

// qwen3Window reads the window, which counts only where it is switched on.
func qwen3Window(k *keys) int {
	if !k.flag("use_sliding_window") {
		return 0
	}
	return k.size("sliding_window", mostPositions)
}
