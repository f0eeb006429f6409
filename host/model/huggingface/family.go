package huggingface

import (
	"fmt"
	"strings"
)

// A family is a kind of models as the hub knows it.
type family struct {
	architecture, modelType string // in config.json
	kind                    string // of model.Settings
	tensors                 table
	freeHeads               bool              // the size of a head is a setting of its own
	window                  func(k *keys) int // tokens that attention looks back; 0: all
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

// familyOf returns the family in which a kind of models is written.
func familyOf(kind string) (family, error) {
	for _, f := range families {
		if f.kind == kind {
			return f, nil
		}
	}
	return family{}, fmt.Errorf("a model of kind %q has no counterpart on the Hugging Face hub", kind)
}

func noWindow(*keys) int { return 0 }

// A table says in which tensors the parameters of cage's models are found, by the name of the parameter. A *
// stands for the number of a block.
type table map[string][]source

// A source is a tensor that holds a parameter, or some rows of it.
type source struct {
	tensor string
	turned bool // the rows are features that rotary positions turn, so that their order depends on the pairing
}

func plain(tensor string) source  { return source{tensor: tensor} }
func turned(tensor string) source { return source{tensor, true} }

// with is a table with the entries of others added.
func (t table) with(others table) table {
	out := table{}
	for _, part := range []table{t, others} {
		for param, sources := range part {
			out[param] = sources
		}
	}
	return out
}

// inAll are the names that all families share.
var inAll = table{
	"embedding": {plain("model.embed_tokens.weight")},
	"layers.*.attn.qkv": {
		turned("model.layers.*.self_attn.q_proj.weight"),
		turned("model.layers.*.self_attn.k_proj.weight"),
		plain("model.layers.*.self_attn.v_proj.weight"),
	},
	"layers.*.attn.out": {plain("model.layers.*.self_attn.o_proj.weight")},
	"layers.*.mlp.w1":   {plain("model.layers.*.mlp.gate_proj.weight")},
	"layers.*.mlp.w2":   {plain("model.layers.*.mlp.up_proj.weight")},
	"layers.*.mlp.down": {plain("model.layers.*.mlp.down_proj.weight")},
	"norm":              {plain("model.norm.weight")},
	"head":              {plain("lm_head.weight")},
}
