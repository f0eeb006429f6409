package export

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
)

func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// ggufTensors maps Hugging Face's tensor names, without the block prefix, to llama.cpp's.
var ggufTensors = map[string]string{
	"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
	"lm_head.weight":                  "output.weight",
	"self_attn.q_proj.weight":         "attn_q.weight",
	"self_attn.k_proj.weight":         "attn_k.weight",
	"self_attn.v_proj.weight":         "attn_v.weight",
	"self_attn.o_proj.weight":         "attn_output.weight",
	"self_attn.q_proj.bias":           "attn_q.bias",
	"self_attn.k_proj.bias":           "attn_k.bias",
	"self_attn.v_proj.bias":           "attn_v.bias",
	"self_attn.q_norm.weight":         "attn_q_norm.weight",
	"self_attn.k_norm.weight":         "attn_k_norm.weight",
	"mlp.gate_proj.weight":            "ffn_gate.weight",
	"mlp.up_proj.weight":              "ffn_up.weight",
	"mlp.down_proj.weight":            "ffn_down.weight",
	"input_layernorm.weight":          "attn_norm.weight",
	"post_attention_layernorm.weight": "ffn_norm.weight",
}

// ggufOLMo2 holds the names that differ for OLMo 2.
var ggufOLMo2 = map[string]string{
	"post_attention_layernorm.weight":   "post_attention_norm.weight",
	"post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}

// ggufFamily is llama.cpp's name for a model family.
type ggufFamily string

// ggufKinds are cage's names.
var ggufKinds = map[ggufFamily]string{"llama": architecture.KindLlama,
	"olmo2": architecture.KindOLMo2, "qwen2": architecture.KindQwen2,
	"qwen3": architecture.KindQwen3, "smollm3": architecture.KindSmolLM3}

// tensors maps names of Hugging Face to those of the family.
func (a ggufFamily) tensors() map[string]string {
	list := maps.Clone(ggufTensors)
	if a == "olmo2" {
		maps.Copy(list, ggufOLMo2)
	}
	return list
}

// interleaves reports whether the rows of a tensor of Hugging Face, named without its block, are in
// another order: in the families llama and smollm3, the features that rotary embeddings rotate together are
// adjacent.
func (a ggufFamily) interleaves(name string) bool {
	return (a == "llama" || a == "smollm3") && (name == "self_attn.q_proj.weight" || name == "self_attn.k_proj.weight")
}

func ggufFamilyOf(s architecture.Settings) (ggufFamily, error) {
	switch s.Kind {
	case architecture.KindLlama:
		if s.RopeScaling == architecture.ScalingLlama3 {
			return "llama", nil
		}
		return "llama", refuseScaledPositions(s)
	case architecture.KindOLMo2:
		if s.HeadSize*s.Heads != s.Width {
			return "", fmt.Errorf("llama.cpp supports OLMo 2 only with a head size of width/heads = "+
				"%d, not %d: use --to hf", s.Width/s.Heads, s.HeadSize)
		}
		return "olmo2", refuseScaledPositions(s)
	case architecture.KindQwen2, architecture.KindQwen3, architecture.KindSmolLM3:
		return ggufFamily(s.Kind), refuseScaledPositions(s)
	}
	return "", fmt.Errorf("models of kind %q cannot be written as GGUF: use --to hf", s.Kind)
}

// parts lists the tensors with llama.cpp's names and row order. llama.cpp requires an output head
// for OLMo 2; if it is tied, it is written as a copy of the embedding.
func (a ggufFamily) parts(m *Model, headSize int) ([]part, error) {
	list, err := partsOf(m)
	if err != nil {
		return nil, err
	}
	var embedding *part
	renames := a.tensors()
	for i := range list {
		p := &list[i]
		block, name := cutBlock(p.name, hubBlocks)
		renamed, ok := renames[name]
		if !ok {
			return nil, fmt.Errorf("llama.cpp has no name for the tensor %s", p.name)
		}
		if a.interleaves(name) {
			p.rows = architecture.Reorder(p.rows, headSize, architecture.HalfSplit, architecture.Interleaved)
		}
		if p.name = inBlock(ggufBlocksOf, block, renamed); p.name == "token_embd.weight" {
			embedding = p
		}
	}
	hasHead := slices.ContainsFunc(list, func(p part) bool { return p.name == "output.weight" })
	if a == "olmo2" && !hasHead {
		list = append(list, part{"output.weight", embedding.param, embedding.rows})
	}
	return list, nil
}

// Names of tensors in blocks begin with one of these and the number of the block.
const (
	hubBlocks    = "model.layers."
	ggufBlocksOf = "blk."
)

// cutBlock cuts a name into the number of its block, "" if it is in none, and the name within.
func cutBlock(name, blocks string) (block, within string) {
	if rest, ok := strings.CutPrefix(name, blocks); ok {
		block, within, _ = strings.Cut(rest, ".")
		return block, within
	}
	return "", name
}

func inBlock(blocks, block, name string) string {
	if block == "" {
		return name
	}
	return blocks + block + "." + name
}

// refuseScaledPositions returns an error if rotary positions are scaled as in Llama 3: llama.cpp
// reads the tensor of scaling factors only for the family llama.
func refuseScaledPositions(s architecture.Settings) error {
	if s.RopeFactor <= 1 {
		return nil
	}
	return fmt.Errorf("scaled positions (rope_factor = %g, rope_scaling = %q) can be written as GGUF "+
		`only for models of kind llama with rope_scaling = "llama3": use --to hf`,
		s.RopeFactor, s.RopeScaling)
}

// ropeFactors returns the divisors of the rotary frequencies for llama.cpp, or nil if the
// frequencies are not scaled.
func ropeFactors(s architecture.Settings) []float32 {
	if s.RopeFactor <= 1 {
		return nil
	}
	scaled := s.RopeFrequencies()
	s.RopeFactor = 1
	factors := make([]float32, len(scaled))
	for i, frequency := range s.RopeFrequencies() {
		factors[i] = float32(frequency / scaled[i])
	}
	return factors
}

// ggufFileTypes holds the values of general.file_type, which tells readers the type of most
// weights.
var ggufFileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.BF16: 32, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.MXFP4: 38,
}

// ggufKeys are the keys of a model's settings, below the name of its family, and the variables with
// their values: *int or *float64.
func ggufKeys(s *architecture.Settings, positions *int) []ggufKey {
	return []ggufKey{
		{"block_count", &s.Layers},
		{"context_length", positions},
		{"embedding_length", &s.Width},
		{"feed_forward_length", &s.Hidden},
		{"attention.head_count", &s.Heads},
		{"attention.head_count_kv", &s.KVHeads},
		{"rope.freq_base", &s.RopeTheta},
		{"attention.layer_norm_rms_epsilon", &s.NormEps},
		{"rope.dimension_count", &s.HeadSize},
		{"vocab_size", &s.Vocab},
	}
}

type ggufKey struct {
	name string
	to   any
}

// The sizes of keys and values of a head, if these are not width/heads.
const (
	ggufKeySize   = "attention.key_length"
	ggufValueSize = "attention.value_length"
)

// entries returns the metadata of the model, except that of its tokenizer.
func (a ggufFamily) entries(
	m *Model, s architecture.Settings, main gguf.Type,
) ([]gguf.Entry, error) {
	name := string(a)
	fileType, ok := ggufFileTypes[main]
	if !ok {
		return nil, fmt.Errorf("general.file_type has no value for the type %s", main)
	}
	entries := []gguf.Entry{
		{Key: "general.architecture", Value: name},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: m.Card.Name},
	}
	positions := cmp.Or(m.Positions, s.Context)
	for _, k := range ggufKeys(&s, &positions) {
		entry := gguf.Entry{Key: name + "." + k.name}
		switch from := k.to.(type) {
		case *int:
			entry.Value = uint32(*from)
		case *float64:
			entry.Value = float32(*from)
		}
		entries = append(entries, entry)
	}
	entries = append(entries,
		gguf.Entry{Key: "general.file_type", Value: fileType},
		gguf.Entry{Key: "general.quantization_version", Value: uint32(2)})
	if size := s.HeadSize; size != s.Width/s.Heads || s.Kind == architecture.KindQwen3 {
		entries = append(entries, gguf.Entry{Key: name + "." + ggufKeySize, Value: uint32(size)},
			gguf.Entry{Key: name + "." + ggufValueSize, Value: uint32(size)})
	}
	return entries, nil
}
