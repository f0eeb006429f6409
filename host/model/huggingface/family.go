package huggingface

import (
	"fmt"
	"maps"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
)

// A family is a kind of models as the hub knows it.
type family struct {
	architecture, modelType string // in config.json
	kind                    string // of model.Settings
	tensors                 table
	freeHeads               bool              // the size of a head is a setting of its own
	window                  func(k *keys) int // tokens that attention looks back, 0 for all; nil: it always sees all
}

// families are those that can be read. The first of a kind is the one that is written.
var families = []family{llamaFamily, mistralFamily, olmo2Family, qwen3Family}

func familyNames() string {
	var names []string
	for _, f := range families {
		names = append(names, fmt.Sprintf("%q", f.architecture))
	}
	return strings.Join(names, ", ")
}

func familyOf(kind string) (family, error) {
	for _, f := range families {
		if f.kind == kind {
			return f, nil
		}
	}
	return family{}, fmt.Errorf("a model of kind %q has no counterpart on the Hugging Face hub", kind)
}

// A table says in which tensors the parameters of cage's models are found, by the name of the
// parameter. A * stands for the number of a block.
type table map[string][]source

// A source is a tensor that holds a parameter, or some rows of it.
type source struct {
	tensor string
	rotary bool // the rows are features that rotary positions turn, so that their order depends on the pairing
}

func plainSource(tensor string) source { return source{tensor: tensor} }
func rotary(tensor string) source      { return source{tensor, true} }

// merged is a table with the entries of others added.
func (t table) merged(others table) table {
	out := maps.Clone(t)
	maps.Copy(out, others)
	return out
}

// commonTensors are the names that all families share.
var commonTensors = table{
	"embedding": {plainSource("model.embed_tokens.weight")},
	"layers.*.attn.qkv": {
		rotary("model.layers.*.self_attn.q_proj.weight"),
		rotary("model.layers.*.self_attn.k_proj.weight"),
		plainSource("model.layers.*.self_attn.v_proj.weight"),
	},
	"layers.*.attn.out": {plainSource("model.layers.*.self_attn.o_proj.weight")},
	"layers.*.mlp.w1":   {plainSource("model.layers.*.mlp.gate_proj.weight")},
	"layers.*.mlp.w2":   {plainSource("model.layers.*.mlp.up_proj.weight")},
	"layers.*.mlp.down": {plainSource("model.layers.*.mlp.down_proj.weight")},
	"norm":              {plainSource("model.norm.weight")},
	"head":              {plainSource("lm_head.weight")},
}

// llamaFamily are Llama 2, 3 and what is built like them: TinyLlama, SmolLM.
var llamaFamily = family{architecture: "LlamaForCausalLM", modelType: "llama", kind: architecture.KindLlama, tensors: llamaTensors}

// mistralFamily are the models of Mistral AI that are Llamas as long as their window of attention
// is no shorter than the sequences.
var mistralFamily = family{architecture: "MistralForCausalLM", modelType: "mistral", kind: architecture.KindLlama, tensors: llamaTensors,
	window: func(k *keys) int {
		if _, some := k.values["sliding_window"]; !some {
			return 4096 // as in transformers
		}
		return k.size("sliding_window", maxPositions)
	}}

// llamaTensors: post_attention_layernorm stands before the feed-forward layer.
var llamaTensors = commonTensors.merged(table{
	"layers.*.attn_norm": {plainSource("model.layers.*.input_layernorm.weight")},
	"layers.*.mlp_norm":  {plainSource("model.layers.*.post_attention_layernorm.weight")},
})

// olmo2Family are the models of OLMo 2. Norms stand behind the layers: post_attention_layernorm
// behind attention, where a Llama has another norm of that name.
var olmo2Family = family{architecture: "Olmo2ForCausalLM", modelType: "olmo2", kind: architecture.KindOLMo2,
	tensors: commonTensors.merged(table{
		"layers.*.attn.q_norm": {rotary("model.layers.*.self_attn.q_norm.weight")},
		"layers.*.attn.k_norm": {rotary("model.layers.*.self_attn.k_norm.weight")},
		"layers.*.attn_norm":   {plainSource("model.layers.*.post_attention_layernorm.weight")},
		"layers.*.mlp_norm":    {plainSource("model.layers.*.post_feedforward_layernorm.weight")},
	})}

// qwen3Family are the dense models of Qwen3: Llamas that normalize each head of queries and
// keys, and whose heads have a size of their own.
var qwen3Family = family{architecture: "Qwen3ForCausalLM", modelType: "qwen3", kind: architecture.KindQwen3, freeHeads: true,
	window: func(k *keys) int { // it counts only where it is switched on
		if !k.flag("use_sliding_window") {
			return 0
		}
		return k.size("sliding_window", maxPositions)
	},
	tensors: llamaTensors.merged(table{
		"layers.*.attn.q_norm": {rotary("model.layers.*.self_attn.q_norm.weight")},
		"layers.*.attn.k_norm": {rotary("model.layers.*.self_attn.k_norm.weight")},
	})}
