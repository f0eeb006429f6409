package huggingface

import (
	"encoding/json/jsontext"
	"encoding/json/v2"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
)

// torchNames are the names of element types in config.json.
var torchNames = map[safetensors.DType]string{safetensors.F32: "float32", safetensors.BF16: "bfloat16", safetensors.F16: "float16"}

// Encode returns the text of config.json, with the keys of transformers 4, which all versions read.
func (c *Config) Encode(dtype safetensors.DType) ([]byte, error) {
	s := c.Settings
	s.FillIn()
	f, err := familyOf(s.Kind)
	if err != nil {
		return nil, err
	}
	entries := map[string]any{
		"architectures": []string{f.architecture}, "model_type": f.modelType,
		"hidden_size": s.Width, "num_hidden_layers": s.Layers, "num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads,
		"head_dim": s.HeadSize, "intermediate_size": s.Hidden, "vocab_size": s.Vocab,
		"rms_norm_eps": s.NormEps, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
		"tie_word_embeddings": s.Head == "tied", "initializer_range": s.InitStd, "max_position_embeddings": c.MaxPositions,
		"rope_theta": s.RopeTheta, "rope_scaling": scalingOf(s), "torch_dtype": torchNames[dtype], "use_cache": true,
	}
	c.Tokens.encode(entries)
	text, err := json.Marshal(entries, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(text, '\n'), err
}

// scalingOf is the entry rope_scaling.
func scalingOf(s architecture.Settings) any {
	if s.RopeFactor <= 1 {
		return nil
	}
	return map[string]any{"rope_type": "llama3", "factor": s.RopeFactor, "low_freq_factor": s.RopeLow, "high_freq_factor": s.RopeHigh,
		"original_max_position_embeddings": s.RopeOriginal}
}

// encode adds the ids that there are: one as a number, several as a list.
func (t Tokens) encode(entries map[string]any) {
	for key, ids := range map[string][]int32{"bos_token_id": t.Begin, "eos_token_id": t.End, "pad_token_id": t.Pad} {
		switch len(ids) {
		case 0:
		case 1:
			entries[key] = ids[0]
		default:
			entries[key] = ids
		}
	}
}

// A Place is where a Hugging Face checkpoint stores a parameter of a model, or some rows
// of it.
type Place struct {
	Tensor string
	Param  architecture.Param
	Rows   []int // rows of the parameter, in the order of the tensor's rows
}

// Layout lists the tensors of a model and where their contents come from, in the order of
// the parameters.
func Layout(s architecture.Settings) ([]Place, error) {
	f, err := familyOf(s.Kind)
	if err != nil {
		return nil, err
	}
	s.FillIn()
	bindings, err := f.bind(s)
	if err != nil {
		return nil, err
	}
	var list []Place
	for _, b := range bindings {
		at := 0
		for _, p := range b.pieces {
			place := Place{Tensor: p.tensor, Param: b.param}
			for i := range p.dims[0] {
				place.Rows = append(place.Rows, at+i)
			}
			if p.turned {
				place.Rows = architecture.Reorder(place.Rows, s.HeadSize, s.RopePairs, architecture.HalfSplit)
			}
			at += p.dims[0]
			list = append(list, place)
		}
	}
	return list, nil
}
