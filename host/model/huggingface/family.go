package huggingface

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/safetext"
)

// A family describes how Hugging Face checkpoints represent one kind of model.
type family struct {
	architecture, modelType string // in config.json
	kind                    string // architecture.Settings.Kind
	tensors                 table
	defaults                map[string]any // of absent keys, beside usualDefaults
	theta, localTheta       float64        // default base of positions; in layers with a window
	windowed                bool           // layers have a window
	switched                bool           // only if use_sliding_window is true
	activationKey           string         // key of the gate's activation; "" means activationKey
	// check reads keys of its own; it may be nil
	check func(k *keys, s *architecture.Settings)
	// describe returns keys of its own; it may be nil
	describe func(s architecture.Settings, positions int) map[string]any
}

// families are the supported families. Models of a kind are written as the first family of that
// kind.
var families = []family{llamaFamily, mistralFamily, ministralFamily, olmo2Family, qwen2Family,
	qwen3Family, smolLM3Family, gemmaFamily, gemma2Family, gemma3Family, graniteFamily, olmo3Family}

// usualDefaults are the values of absent keys in transformers (configuration_*.py). Other keys are
// optional, or must be given.
var usualDefaults = map[string]any{"rms_norm_eps": 1e-6, positionsKey: 2048, tiedKey: false}

// leftOut are architectures that are not supported, by what they would need.
var leftOut = map[string][]string{
	"mixtures of experts": {"MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM",
		"OlmoeForCausalLM", "GraniteMoeForCausalLM", "Llama4ForConditionalGeneration"},
	"mixtures of experts, and attention sinks": {"GptOssForCausalLM"},
	"layers of Gated DeltaNet, and gated attention": {"Qwen3NextForCausalLM",
		"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM"},
	"embeddings in every layer": {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
	"heads of two sizes, layers that share keys and values or have one projection for both, " +
		"embeddings and a factor in every layer, and a norm of values": {"Gemma4ForCausalLM",
		"Gemma4ForConditionalGeneration"},
	"fused projections (qkv_proj, gate_up_proj)": {"Phi3ForCausalLM"},
	"queries that are scaled by their positions": {"Ministral3ForCausalLM"},
	"its text model to be read by itself, and in Ministral 3 queries that are scaled by their " +
		"positions": {"Mistral3ForConditionalGeneration"},
}

func familyNames() string {
	names := lists.Map(families, func(f family) string { return fmt.Sprintf("%q", f.architecture) })
	return strings.Join(names, ", ")
}

func familyOf(kind string) (family, error) {
	for _, f := range families {
		if f.kind == kind {
			return f, nil
		}
	}
	return family{}, fmt.Errorf("models of kind %q have no Hugging Face architecture", kind)
}

// A table maps the names of parameters of cage's models to the tensors that hold them. A * is
// replaced by the number of a block.
type table map[string][]source

// A source is a tensor that holds a parameter, or some rows of it.
type source struct {
	tensor string
	rotary bool // the rows are rotary features, so that their order depends on the pairing
}

func plainSource(tensor string) source { return source{tensor: tensor} }
func rotary(tensor string) source      { return source{tensor, true} }

func (t table) merged(others table) table {
	out := maps.Clone(t)
	maps.Copy(out, others)
	return out
}

// projections are the tensors of queries, keys and values.
func projections(what string) []source {
	const of = "model.layers.*.self_attn."
	return []source{rotary(of + "q_proj." + what), rotary(of + "k_proj." + what),
		plainSource(of + "v_proj." + what)}
}

// commonTensors are the tensor names that all families share.
var commonTensors = table{
	"embedding":         {plainSource("model.embed_tokens.weight")},
	"layers.*.attn.qkv": projections("weight"),
	"layers.*.attn.out": {plainSource("model.layers.*.self_attn.o_proj.weight")},
	"layers.*.mlp.w1":   {plainSource("model.layers.*.mlp.gate_proj.weight")},
	"layers.*.mlp.w2":   {plainSource("model.layers.*.mlp.up_proj.weight")},
	"layers.*.mlp.down": {plainSource("model.layers.*.mlp.down_proj.weight")},
	"norm":              {plainSource("model.norm.weight")},
	"head":              {plainSource("lm_head.weight")},
}

// llamaFamily is Llama 2, 3 and models of the same architecture: TinyLlama, SmolLM.
var llamaFamily = family{architecture: "LlamaForCausalLM", modelType: "llama",
	kind: architecture.KindLlama, tensors: llamaTensors}

// mistralFamily is Mistral: a Llama whose layers may have a sliding window.
var mistralFamily = family{architecture: "MistralForCausalLM", modelType: "mistral",
	kind: architecture.KindLlama, tensors: llamaTensors,
	defaults: map[string]any{"num_key_value_heads": 8, positionsKey: 131072, windowKey: 4096},
	windowed: true,
	describe: func(s architecture.Settings, _ int) map[string]any {
		if s.Window == 0 {
			return map[string]any{windowKey: nil} // not absent: that means 4096
		}
		return map[string]any{windowKey: s.Window}
	}}

// ministralFamily is Ministral in transformers 5: a Mistral whose layers may differ in their
// windows, in sequences that are too short for these.
var ministralFamily = family{architecture: "MinistralForCausalLM", modelType: "ministral",
	kind: architecture.KindLlama, tensors: llamaTensors, defaults: mistralFamily.defaults,
	windowed: true, describe: describeLayers,
	check: func(k *keys, s *architecture.Settings) {
		k.required("head_dim", architecture.MaxHeads)
		if types := k.layerTypes(); types != nil && !slices.Contains(types, slidingAttention) {
			s.Window = 0
		}
		if k.isNull(windowKey) { // transformers needs it for full attention, too
			k.fault(windowKey, k.found(windowKey), "a number of tokens")
		}
	}}

// llamaTensors has the tensors of Llama, whose post_attention_layernorm is the norm before the
// feed-forward layer.
var llamaTensors = commonTensors.merged(table{
	"layers.*.attn_norm": {plainSource("model.layers.*.input_layernorm.weight")},
	"layers.*.mlp_norm":  {plainSource("model.layers.*.post_attention_layernorm.weight")},
})

// olmo2Family is OLMo 2. It is post-norm: post_attention_layernorm follows attention, whereas in a
// Llama it precedes the feed-forward layer.
var olmo2Family = family{architecture: "Olmo2ForCausalLM", modelType: "olmo2",
	kind: architecture.KindOLMo2, defaults: map[string]any{"rms_norm_eps": 1e-5},
	tensors: commonTensors.merged(headNorms).merged(table{
		"layers.*.attn_norm": {plainSource("model.layers.*.post_attention_layernorm.weight")},
		"layers.*.mlp_norm":  {plainSource("model.layers.*.post_feedforward_layernorm.weight")},
	})}

// olmo3Family is OLMo 3: OLMo 2 with a window in three of four layers.
var olmo3Family = family{architecture: "Olmo3ForCausalLM", modelType: "olmo3",
	kind: architecture.KindOLMo3, tensors: olmo2Family.tensors, windowed: true,
	defaults: map[string]any{"rms_norm_eps": 1e-5, windowKey: 4096}, theta: 5e5, localTheta: 5e5,
	describe: describeLayers}

// qwen2Family is Qwen2 and Qwen2.5: a Llama with biases of queries, keys and values.
var qwen2Family = family{architecture: "Qwen2ForCausalLM", modelType: "qwen2",
	kind: architecture.KindQwen2, switched: true, describe: describeFull,
	defaults: map[string]any{"num_key_value_heads": 32, positionsKey: 32768,
		windowKey: 4096},
	tensors: llamaTensors.merged(table{"layers.*.attn.qkv_bias": projections("bias")})}

// qwen3Family is dense Qwen3: a Llama that normalizes each head of queries and keys, and has an
// independent head size.
var qwen3Family = family{architecture: "Qwen3ForCausalLM", modelType: "qwen3",
	kind: architecture.KindQwen3, switched: true, describe: describeFull,
	defaults: map[string]any{"num_key_value_heads": 32, positionsKey: 32768, "head_dim": 128,
		windowKey: 4096},
	tensors: llamaTensors.merged(headNorms)}

// smolLM3Family is SmolLM3: a Llama of which every fourth layer has no rotary positions.
var smolLM3Family = family{architecture: "SmolLM3ForCausalLM", modelType: "smollm3",
	kind: architecture.KindSmolLM3, tensors: llamaTensors, switched: true, theta: 2e6,
	defaults: map[string]any{"num_key_value_heads": 4, positionsKey: 32768, tiedKey: true},
	describe: func(s architecture.Settings, positions int) map[string]any {
		m := describeFull(s, positions)
		m[intervalKey], m[rotatedKey] = 4, rotatedLayers(s)
		return m
	},
	check: func(k *keys, s *architecture.Settings) {
		only(k, intervalKey, 4)
		var rotated []int
		if !k.read(rotatedKey, &rotated, "a list of 0 and 1") {
			return
		}
		if !slices.Equal(rotated, rotatedLayers(*s)) {
			k.fault(rotatedKey, k.found(rotatedKey), "0 for every fourth layer, and 1 for others")
		}
	}}

// Keys of SmolLM3: one for each layer, and which have none.
const rotatedKey, intervalKey = "no_rope_layers", "no_rope_layer_interval"

// rotatedLayers returns 1 for layers with rotary positions, and 0 for others.
func rotatedLayers(s architecture.Settings) []int {
	list := make([]int, s.Layers)
	for i := range list {
		if s.LayerRope(i).RopeTheta != 0 {
			list[i] = 1
		}
	}
	return list
}

// gemmaFamily is Gemma 1: a Llama with gains of 1 more than the parameters of norms, GELU and a
// scaled embedding.
var gemmaFamily = family{architecture: "GemmaForCausalLM", modelType: "gemma",
	kind: architecture.KindGemma, tensors: llamaTensors,
	defaults: map[string]any{"num_key_value_heads": 16, "head_dim": 256, positionsKey: 8192,
		tiedKey: true},
	check: func(k *keys, s *architecture.Settings) { // transformers 4 read this key first
		only(k, gemma2Family.activationKey, activation(*s))
	}}

// gemma2Family is Gemma 2: norms before and after the layers, and caps of scores and logits.
var gemma2Family = family{architecture: "Gemma2ForCausalLM", modelType: "gemma2",
	kind: architecture.KindGemma2, activationKey: "hidden_activation", windowed: true,
	defaults: map[string]any{"num_key_value_heads": 4, "head_dim": 256, positionsKey: 8192,
		tiedKey: true, windowKey: 4096, scalarKey: 256, "attn_logit_softcapping": 50,
		"final_logit_softcapping": 30},
	check: checkGemma, describe: describeLayers,
	tensors: commonTensors.merged(table{
		"layers.*.attn_norm":      {plainSource("model.layers.*.input_layernorm.weight")},
		"layers.*.attn_post_norm": {plainSource("model.layers.*.post_attention_layernorm.weight")},
		"layers.*.mlp_norm":       {plainSource("model.layers.*.pre_feedforward_layernorm.weight")},
		"layers.*.mlp_post_norm":  {plainSource("model.layers.*.post_feedforward_layernorm.weight")},
	})}

// gemma3Family is the text model of Gemma 3. Layers with a window, five of six, have rotary
// positions of their own.
var gemma3Family = family{architecture: "Gemma3ForCausalLM", modelType: "gemma3_text",
	kind: architecture.KindGemma3, activationKey: "hidden_activation", windowed: true,
	defaults: map[string]any{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
		vocabKey: 262208, positionsKey: 131072, tiedKey: true, windowKey: 4096, scalarKey: 256},
	theta: 1e6, localTheta: 1e4, check: checkGemma, tensors: gemma2Family.tensors.merged(headNorms),
	describe: func(s architecture.Settings, positions int) map[string]any {
		m := describeLayers(s, positions)
		m["rope_local_base_freq"], m["sliding_window_pattern"] = s.LayerRope(0).RopeTheta, 6
		return m
	}}

// headNorms are the norms of queries and keys.
var headNorms = table{
	"layers.*.attn.q_norm": {rotary("model.layers.*.self_attn.q_norm.weight")},
	"layers.*.attn.k_norm": {rotary("model.layers.*.self_attn.k_norm.weight")},
}

// scalarKey is the key of the inverse square of the factor of scores.
const scalarKey = "query_pre_attn_scalar"

// caps are the keys of Gemma's caps, which are null in Gemma 3, and the settings.
func caps(s *architecture.Settings) map[string]*float64 {
	return map[string]*float64{"attn_logit_softcapping": &s.ScoreCap,
		"final_logit_softcapping": &s.LogitCap}
}

func checkGemma(k *keys, s *architecture.Settings) {
	if x := k.requiredNumber(scalarKey); x != float64(s.HeadSize) && x > 0 {
		s.AttentionMultiplier = 1 / math.Sqrt(x)
	}
	for key, to := range caps(s) {
		if s.Kind == architecture.KindGemma3 && k.has(key) {
			k.fault(key, k.found(key), "null")
		} else if !k.isNull(key) {
			*to = k.number(key)
		}
	}
	if s.Kind == architecture.KindGemma3 && !k.has(layersKey) {
		only(k, "sliding_window_pattern", 6)
		only(k, "_sliding_window_pattern", 6)
	}
}

// graniteFamily is Granite 3: a Llama with factors.
var graniteFamily = family{architecture: "GraniteForCausalLM", modelType: "granite",
	kind: architecture.KindGranite, tensors: llamaTensors,
	defaults: map[string]any{"attention_multiplier": 1, "embedding_multiplier": 1,
		"residual_multiplier": 1, "logits_scaling": 1},
	check: func(k *keys, s *architecture.Settings) {
		for key, to := range multipliers(s) {
			*to = k.requiredNumber(key)
		}
	}}

// multipliers are Granite's keys, and the settings.
func multipliers(s *architecture.Settings) map[string]*float64 {
	return map[string]*float64{"attention_multiplier": &s.AttentionMultiplier,
		"embedding_multiplier": &s.EmbeddingMultiplier,
		"residual_multiplier":  &s.ResidualMultiplier, "logits_scaling": &s.LogitsScaling}
}

// layerTypes returns the types of the layers, or nil if there are none in the file.
func (k *keys) layerTypes() (types []string) {
	k.read(layersKey, &types, "a list of strings")
	return types
}

// checkLayerTypes refuses types other than those of cage's models. Where windows do not matter, any
// layer may have one.
func checkLayerTypes(k *keys, c *Config) {
	types, want := k.layerTypes(), LayerTypes(c.Settings)
	for i := range types {
		if c.OtherWindow > 0 && types[i] == slidingAttention {
			types[i] = fullAttention
		}
	}
	if types != nil && !slices.Equal(types, want) {
		k.fault(layersKey, k.found(layersKey), safetext.Clip(fmt.Sprintf("%q", want), 200))
	}
}

func describeLayers(s architecture.Settings, positions int) map[string]any {
	return map[string]any{layersKey: LayerTypes(s), windowKey: cmp.Or(s.Window, positions)}
}

// describeFull says that no layer has a window.
func describeFull(s architecture.Settings, _ int) map[string]any {
	return map[string]any{layersKey: LayerTypes(s), switchKey: false}
}

// LayerTypes lists the types of the layers, as config.json names them.
func LayerTypes(s architecture.Settings) []string {
	types := make([]string, s.Layers)
	for i := range types {
		if types[i] = fullAttention; s.Local(i) || s.Kind == architecture.KindLlama && s.Window > 0 {
			types[i] = slidingAttention
		}
	}
	return types
}
