package export

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
)

func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// ggufShared are the names that llama.cpp gives the tensors of all kinds of models.
var ggufShared = map[string]string{
	"embedding": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight",
	"layers.*.attn.qkv.q": "blk.*.attn_q.weight", "layers.*.attn.qkv.k": "blk.*.attn_k.weight", "layers.*.attn.qkv.v": "blk.*.attn_v.weight",
	"layers.*.attn.out": "blk.*.attn_output.weight",
	"layers.*.mlp.w1":   "blk.*.ffn_gate.weight", "layers.*.mlp.w2": "blk.*.ffn_up.weight", "layers.*.mlp.down": "blk.*.ffn_down.weight",
}

var ggufLlama = mergeNames(ggufShared, map[string]string{
	"layers.*.attn_norm": "blk.*.attn_norm.weight", "layers.*.mlp_norm": "blk.*.ffn_norm.weight",
})

var ggufQwen3 = mergeNames(ggufLlama, map[string]string{
	"layers.*.attn.q_norm": "blk.*.attn_q_norm.weight", "layers.*.attn.k_norm": "blk.*.attn_k_norm.weight",
})

var ggufOLMo2 = mergeNames(ggufShared, map[string]string{
	"layers.*.attn.q_norm": "blk.*.attn_q_norm.weight", "layers.*.attn.k_norm": "blk.*.attn_k_norm.weight",
	"layers.*.attn_norm": "blk.*.post_attention_norm.weight", "layers.*.mlp_norm": "blk.*.post_ffw_norm.weight",
})

func mergeNames(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// ggufFamily is how llama.cpp knows a kind of models.
type ggufFamily struct {
	name string
	layout
}

func ggufFamilyOf(s architecture.Settings) (ggufFamily, error) {
	switch s.Kind {
	case architecture.KindLlama:
		return ggufFamily{"llama", layout{ggufLlama, architecture.Interleaved}}, nil
	case architecture.KindOLMo2:
		if size := headSize(s); size*s.Heads != s.Width {
			return ggufFamily{}, fmt.Errorf("llama.cpp knows OLMo 2 only with heads of width/heads = %d features, and these have %d: --to hf holds them", s.Width/s.Heads, size)
		}
		return ggufFamily{"olmo2", layout{ggufOLMo2, architecture.HalfSplit}}, refuseScaledPositions(s)
	case architecture.KindQwen3:
		return ggufFamily{"qwen3", layout{ggufQwen3, architecture.HalfSplit}}, refuseScaledPositions(s)
	}
	return ggufFamily{}, fmt.Errorf("llama.cpp has no name for models of the kind %q", s.Kind)
}

// refuseScaledPositions refuses positions that are stretched as in Llama 3: llama.cpp reads the tensor of their factors for the
// architecture llama alone.
func refuseScaledPositions(s architecture.Settings) error {
	if s.RopeFactor <= 1 {
		return nil
	}
	return fmt.Errorf("llama.cpp stretches positions (rope_factor = %g) of models of the kind llama only: --to hf holds them", s.RopeFactor)
}

// withHead adds the embedding once more, as the output head, where llama.cpp wants the tensor though the head is tied: it
// takes the embedding in its place for other architectures than that of OLMo 2.
func (a ggufFamily) withHead(parts []part) []part {
	head := a.names["head"]
	if a.name != "olmo2" || slices.ContainsFunc(parts, func(p part) bool { return p.name == head }) {
		return parts
	}
	for _, p := range parts {
		if p.name == a.names["embedding"] {
			p.name = head
			return append(parts, p)
		}
	}
	return parts
}

// ropeFactors are what llama.cpp divides the frequencies of rotary positions by, nil where
// they stay as they are.
func ropeFactors(s architecture.Settings) []float32 {
	if s.RopeFactor <= 1 {
		return nil
	}
	size := headSize(s)
	factors := make([]float32, size/2)
	for i := range factors {
		frequency := math.Pow(s.RopeTheta, -2*float64(i)/float64(size))
		periods := float64(s.RopeOriginal) * frequency / (2 * math.Pi)
		share := min(1, max(0, (periods-s.RopeLow)/(s.RopeHigh-s.RopeLow)))
		factors[i] = float32(1 / ((1-share)/s.RopeFactor + share))
	}
	return factors
}

// ggufFileTypes are the numbers of general.file_type, which tells people what most
// weights are.
var ggufFileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.BF16: 32, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.MXFP4: 38,
}

// entries describe the model. Those about its tokenizer follow.
func (a ggufFamily) entries(m *Model, main gguf.Type) ([]gguf.Entry, error) {
	s := m.Settings
	fileType, ok := ggufFileTypes[main]
	if !ok {
		return nil, fmt.Errorf("%s is no type of a whole file", main)
	}
	entries := []gguf.Entry{
		{Key: "general.architecture", Value: a.name},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: m.Card.Name},
		{Key: a.name + ".block_count", Value: uint32(s.Layers)},
		{Key: a.name + ".context_length", Value: uint32(cmp.Or(m.Positions, s.Context))},
		{Key: a.name + ".embedding_length", Value: uint32(s.Width)},
		{Key: a.name + ".feed_forward_length", Value: uint32(s.Hidden)},
		{Key: a.name + ".attention.head_count", Value: uint32(s.Heads)},
		{Key: a.name + ".attention.head_count_kv", Value: uint32(s.KVHeads)},
		{Key: a.name + ".rope.freq_base", Value: float32(s.RopeTheta)},
		{Key: a.name + ".attention.layer_norm_rms_epsilon", Value: float32(s.NormEps)},
		{Key: a.name + ".rope.dimension_count", Value: uint32(headSize(s))},
		{Key: a.name + ".vocab_size", Value: uint32(s.Vocab)},
		{Key: "general.file_type", Value: fileType},
		{Key: "general.quantization_version", Value: uint32(2)},
	}
	if size := headSize(s); size != s.Width/s.Heads || s.Kind == architecture.KindQwen3 {
		entries = append(entries, gguf.Entry{Key: a.name + ".attention.key_length", Value: uint32(size)},
			gguf.Entry{Key: a.name + ".attention.value_length", Value: uint32(size)})
	}
	return entries, nil
}
