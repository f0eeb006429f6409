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
	"github.com/cage-qat/cage/host/model/huggingface"
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

// ggufPostNorms holds the names that differ where norms follow the layers.
var ggufPostNorms = map[string]string{
	"post_attention_layernorm.weight":   "post_attention_norm.weight",
	"pre_feedforward_layernorm.weight":  "ffn_norm.weight",
	"post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}

// ggufFamily is llama.cpp's name for a model family.
type ggufFamily string

// tensors maps names of Hugging Face to those of the family.
func (a ggufFamily) tensors() map[string]string {
	list := maps.Clone(ggufTensors)
	if a == "olmo2" || a == "gemma2" || a == "gemma3" {
		maps.Copy(list, ggufPostNorms)
	}
	return list
}

// isGemma reports whether the gains of norms are stored, and not what is added to 1.
func (a ggufFamily) isGemma() bool { return strings.HasPrefix(string(a), "gemma") }

// interleaves reports whether the rows of a tensor of Hugging Face, named without its block, are in
// another order: the features that rotary embeddings rotate together are adjacent.
func (a ggufFamily) interleaves(name string) bool {
	return (a == "llama" || a == "smollm3" || a == "granite") &&
		(name == "self_attn.q_proj.weight" || name == "self_attn.k_proj.weight")
}

// attentionMultiplier returns what llama.cpp has in place of the setting for Gemma: another factor
// in the models of 27 billion parameters, which it tells by their numbers of layers.
func (a ggufFamily) attentionMultiplier(s architecture.Settings) float64 {
	if a == "gemma2" && s.Layers == 46 || a == "gemma3" && s.Layers == 62 {
		return 1 / math.Sqrt(float64(s.Width/max(1, s.Heads)))
	}
	return 0
}

// ggufFamilyOf returns the family, or why llama.cpp does not compute such a model.
func ggufFamilyOf(s architecture.Settings) (ggufFamily, error) {
	a := ggufFamily(s.Kind)
	if s.Kind == architecture.KindOLMo3 { // OLMo 2 with a window
		a = "olmo2"
	}
	plain := s
	plain.AttentionMultiplier = a.attentionMultiplier(s)
	scaled := s.RopeFactor > 1
	lacks := []lack{
		{(a == "gemma" || a == "gemma2") && !s.Tied(), ownHead},
		{a == "gemma2" && s.ScoreCap*s.LogitCap == 0, noCap},
		{a.isGemma() && math.Abs(plain.ScoreScale()/s.ScoreScale()-1) > 1e-6,
			fmt.Sprintf("attention_multiplier = %g, but %g", s.ScoreScale(), plain.ScoreScale())},
		{a != "llama" && scaled && s.RopeScaling == architecture.ScalingLlama3,
			fmt.Sprintf("scaled positions by rope_scaling = %q", s.RopeScaling)},
		{scaled && s.RopeScaling == architecture.ScalingYaRN &&
			(s.RopeLow != yarnLow || s.RopeHigh != yarnHigh),
			fmt.Sprintf("YaRN with rope_low = %g and rope_high = %g", s.RopeLow, s.RopeHigh)},
	}
	if a == "olmo2" {
		lacks = append(lacks, otherHeadSize(s))
	}
	return a, computes("llama.cpp", "hf", s, lacks...)
}

// parts lists the tensors with llama.cpp's names and row order. llama.cpp requires an output head
// for OLMo 2; if it is tied, it is written as a copy of the embedding.
func (a ggufFamily) parts(m *Model, headSize int) ([]part, error) {
	list, err := huggingface.Layout(m.Settings)
	if err != nil {
		return nil, err
	}
	var embedding *part
	renames := a.tensors()
	for i := range list {
		p := &list[i]
		block, name := cutBlock(p.Tensor, hubBlocks)
		renamed, ok := renames[name]
		if !ok {
			return nil, fmt.Errorf("llama.cpp has no name for the tensor %s", p.Tensor)
		}
		if a.interleaves(name) {
			p.Rows = architecture.Reorder(p.Rows, headSize, architecture.HalfSplit, architecture.Interleaved)
		}
		if p.Tensor = inBlock(ggufBlocksOf, block, renamed); p.Tensor == "token_embd.weight" {
			embedding = p
		}
	}
	hasHead := slices.ContainsFunc(list, func(p part) bool { return p.Tensor == "output.weight" })
	if a == "olmo2" && !hasHead {
		head := *embedding
		head.Tensor = "output.weight"
		list = append(list, head)
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

// ropeFactors returns the divisors of the rotary frequencies for llama.cpp, or nil if the
// frequencies are not scaled as in Llama 3.
func ropeFactors(s architecture.Settings) []float32 {
	if s.RopeFactor <= 1 || s.RopeScaling != architecture.ScalingLlama3 {
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
// weights, for all of ggufTypes.
var ggufFileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.BF16: 32, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.MXFP4: 38,
	gguf.TQ1_0: 36, gguf.TQ2_0: 37, gguf.NVFP4: 39, gguf.Q2_0: 41, gguf.Q1_0: 40, gguf.Q5_0: 8,
	gguf.Q5_1: 9,
}

// keys are the keys of a model's settings, below the name of its family, and the variables with
// their values: *int or *float64.
func (a ggufFamily) keys(s *architecture.Settings, positions *int) []ggufKey {
	list := []ggufKey{
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
	switch a {
	case "granite":
		list = append(list, ggufKey{"attention.scale", &s.AttentionMultiplier},
			ggufKey{"embedding_scale", &s.EmbeddingMultiplier},
			ggufKey{"residual_scale", &s.ResidualMultiplier}, ggufKey{"logit_scale", &s.LogitsScaling})
	case "gemma2":
		list = append(list, ggufKey{"attn_logit_softcapping", &s.ScoreCap},
			ggufKey{"final_logit_softcapping", &s.LogitCap})
	}
	if s.Windowed() && a != "llama" { // llama.cpp has no windows in this family
		list = append(list, ggufKey{ggufWindow, &s.Window})
	}
	return list
}

// The bounds of YaRN in llama.cpp.
const yarnLow, yarnHigh = 1, 32

// Keys of windows and of scaled positions.
const (
	ggufWindow   = "attention.sliding_window"
	ggufScaling  = "rope.scaling.type"
	ggufFactor   = "rope.scaling.factor"
	ggufOriginal = "rope.scaling.original_context_length"
)

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
func (a ggufFamily) entries(m *Model, s architecture.Settings, main gguf.Type) []gguf.Entry {
	name := string(a)
	entries := []gguf.Entry{
		{Key: "general.architecture", Value: name},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: m.Card.Name},
	}
	positions := cmp.Or(m.Positions, s.Context)
	s.AttentionMultiplier = s.ScoreScale()
	s.EmbeddingMultiplier, s.ResidualMultiplier = s.InputScale(), s.ResidualScale()
	s.LogitsScaling, s.Window = 1/s.LogitScale(), cmp.Or(s.Window, positions)
	for _, k := range a.keys(&s, &positions) {
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
		gguf.Entry{Key: "general.file_type", Value: ggufFileTypes[main]},
		gguf.Entry{Key: "general.quantization_version", Value: uint32(2)})
	add := func(key string, value any) {
		entries = append(entries, gguf.Entry{Key: name + "." + key, Value: value})
	}
	if size := s.HeadSize; size != s.Width/s.Heads || s.Kind == architecture.KindQwen3 {
		add(ggufKeySize, uint32(size))
		add(ggufValueSize, uint32(size))
	}
	if s.RopeFactor > 1 && s.RopeScaling != architecture.ScalingLlama3 {
		add(ggufScaling, string(s.RopeScaling))
		add(ggufFactor, float32(s.RopeFactor))
	}
	if s.RopeFactor > 1 && s.RopeScaling == architecture.ScalingYaRN {
		add(ggufOriginal, uint32(s.RopeOriginal))
	}
	return entries
}
