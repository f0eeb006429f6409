package huggingface

import (
	"cmp"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/schema"
)

// Config is the description of a model in config.json, converted to cage's settings.
type Config struct {
	Architecture string // as named in the file
	// Settings are the model's settings. Context is 0, because a checkpoint does not determine it.
	Settings     architecture.Settings
	MaxPositions int // largest number of tokens in a sequence
	// OtherWindow is the window of some layers, in tokens, in sequences that are longer than those of
	// the run, which are too short for it; 0: none.
	OtherWindow int
	Tokens      Tokens
	Warnings    []string // settings in the file that cage ignores
	Packing     *Packing // of matrices in few bits; nil: all are floats
}

// Tokens lists the ids of special tokens.
type Tokens struct {
	Begin []int32 `json:"begin"` // begin a document: one or none
	End   []int32 `json:"end"`   // each ends a text
	Pad   []int32 `json:"pad"`   // padding: one or none
}

// Keys that are both read and written.
const (
	vocabKey        = "vocab_size"
	positionsKey    = "max_position_embeddings"
	thetaKey        = "rope_theta"
	beginKey        = "bos_token_id"
	endKey          = "eos_token_id"
	tiedKey         = "tie_word_embeddings"
	windowKey       = "sliding_window"
	switchKey       = "use_sliding_window"
	layersKey       = "layer_types"
	scalingKey      = "rope_scaling"    // of transformers 4
	parametersKey   = "rope_parameters" // of transformers 5
	quantizationKey = "quantization_config"
	activationKey   = "hidden_act"
)

// maxPositions bounds the number of tokens in a sequence.
const maxPositions = 1 << 30

// ParseConfig parses the text of a config.json, for use with sequences of context tokens; 0 means
// the model's maximum. The error is an [*Error].
func ParseConfig(text []byte, context int) (*Config, error) {
	k, err := newKeys(text)
	if err != nil {
		return nil, &Error{Faults: []string{err.Error()}}
	}
	f := findFamily(k)
	k.defaults = maps.Clone(usualDefaults)
	maps.Copy(k.defaults, f.defaults)
	c := &Config{Architecture: f.architecture}
	c.Settings.Kind = f.kind
	s := &c.Settings
	s.Width = k.required("hidden_size", architecture.MaxWidth)
	s.Layers = k.required("num_hidden_layers", architecture.MaxLayers)
	s.Heads = k.required("num_attention_heads", architecture.MaxHeads)
	s.Hidden = k.required("intermediate_size", architecture.MaxHidden)
	s.Vocab = k.required(vocabKey, architecture.MaxVocab)
	s.KVHeads = cmp.Or(k.size("num_key_value_heads", architecture.MaxHeads), s.Heads)
	s.HeadSize = k.size("head_dim", architecture.MaxHeads) // 0: hidden_size/heads
	s.NormEps = k.requiredNumber("rms_norm_eps")
	s.Head = "own"
	if k.flag(tiedKey) {
		s.Head = "tied"
	}
	k.rope(f, s)
	// Other values of these keys would change the network, and are not supported.
	if s.Kind != architecture.KindGemma || k.text(activationKey) != "gelu" { // by tanh in Gemma 1, too
		only(k, cmp.Or(f.activationKey, activationKey), activation(*s))
	}
	for _, key := range []string{"attention_bias", "mlp_bias", "use_bidirectional_attention"} {
		only(k, key, false)
	}
	only(k, "is_causal", true)
	only(k, "partial_rotary_factor", 1.0)
	c.MaxPositions = k.required(positionsKey, maxPositions)
	// Mistral and Qwen have none if it is null.
	if s.Kind != architecture.KindLlama && !f.switched || !k.isNull(windowKey) {
		s.Window = k.size(windowKey, maxPositions)
	}
	if f.switched && !k.flag(switchKey) {
		s.Window = 0
	}
	if f.check != nil {
		f.check(k, s)
	}
	if c.Packing = k.packing(); c.Packing != nil && c.Packing.inputs {
		c.Warnings = append(c.Warnings, "other programs quantize its layers' inputs; cage does not, "+
			"unless quantizer.activations says so")
	}
	var dropout float64
	if k.read("attention_dropout", &dropout, "a number") && dropout != 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("attention_dropout is %g, but is ignored", dropout))
	}
	vocab := s.Vocab
	c.Tokens = Tokens{Begin: k.ids(beginKey, vocab), End: k.ids(endKey, vocab),
		Pad: k.ids("pad_token_id", vocab)}
	if !f.windowed || s.Kind == architecture.KindLlama && // whose layers are alike
		slices.Contains(k.layerTypes(), fullAttention) {
		if n := cmp.Or(context, c.MaxPositions); s.Window > 0 && s.Window < n {
			k.fault(windowKey, fmt.Sprintf("%d, but sequences have %d tokens", s.Window, n),
				"a context that is no longer than that")
		}
		s.Window, c.OtherWindow = 0, s.Window
	}
	checkLayerTypes(k, c)
	k.onlyKnown("no such key: cage does not have this setting, which may change what the model computes",
		harmless...)
	for _, p := range s.Check() {
		k.fault(cmp.Or(configKeys[p.Key], p.Key), "found "+p.Found, "sizes that go together")
	}
	filled := *s
	filled.FillIn()
	sound := len(k.faults) == 0
	for _, key := range filled.Keys() { // a run has no other values
		value := key.Value()
		if _, ok := key.Accept(value); !ok && sound && key.Belongs(s.Kind) && key.Name != "context" {
			k.fault(cmp.Or(configKeys["model."+key.Name], key.Name), "found "+schema.Describe(value),
				key.Wants())
		}
	}
	if len(k.faults) > 0 {
		slices.Sort(k.faults)
		return nil, &Error{Faults: slices.Compact(k.faults)}
	}
	*s = filled
	return c, nil
}

// harmless are keys of published files and of transformers that do not change what the model
// computes: notes about the file, settings of training and of generation, and what other
// programs or other tasks read.
var harmless = strings.Fields("_attn_implementation_autoset _commit_hash _flash_attn_2_enabled " +
	"_name_or_path _sliding_window_pattern attn_implementation auto_map cache_implementation chunk_size_feed_forward " +
	"decoder_start_token_id dtype finetuning_task gradient_checkpointing hidden_act id2label " +
	"initializer_range is_llama_config label2id max_sequence_length max_window_layers model_type name_or_path " +
	"num_labels output_attentions output_hidden_states prefix pretraining_tp problem_type " +
	"return_dict sep_token_id sliding_window_pattern task_specific_params tokenizer_class torch_dtype torchscript " +
	"transformers.js_config transformers_version unsloth_fixed unsloth_version use_bfloat16 " +
	"use_cache use_return_dict " +
	// what transformers read here before there was generation_config.json
	"assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens " +
	"diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size " +
	"encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty " +
	"forced_bos_token_id forced_eos_token_id length_penalty max_length min_length " +
	"no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups " +
	"num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty " +
	"return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p typical_p")

// findFamily returns the family that the file names. If it names no supported one, findFamily
// records a fault and returns that of Llama, so that the other keys can be checked.
func findFamily(k *keys) family {
	var architectures []string
	k.read("architectures", &architectures, "a list of strings")
	if len(architectures) == 0 {
		k.fault("architectures", "missing", "one of "+familyNames())
		return llamaFamily
	}
	i := slices.IndexFunc(families, func(f family) bool { return f.architecture == architectures[0] })
	if i < 0 {
		found := k.found("architectures")
		for needs, names := range leftOut {
			if slices.Contains(names, architectures[0]) {
				found += ", which would need " + needs
			}
		}
		k.fault("architectures", found, "one of "+familyNames())
		return llamaFamily
	}
	f := families[i]
	if kind := k.text("model_type"); kind != f.modelType {
		found := k.found("model_type")
		if !k.has("model_type") {
			found = "missing"
		}
		k.fault("model_type", found, fmt.Sprintf("%q for %s", f.modelType, f.architecture))
	}
	return f
}

// configKeys maps keys of a run's configuration to keys of config.json.
var configKeys = map[string]string{
	"model.heads": "num_attention_heads", "model.kv_heads": "num_key_value_heads",
	"model.head_size": "head_dim", "model.rope_high": "rope_scaling",
	"model.rope_factor": "rope_scaling", "model.norm_eps": "rms_norm_eps",
}

var torchNames = map[safetensors.DType]string{safetensors.F32: "float32",
	safetensors.BF16: "bfloat16", safetensors.F16: "float16"}

// Describe returns the description of a model that was not made from a checkpoint.
func (c *Config) Describe() (d Description, err error) {
	config, err := c.computed()
	if err != nil {
		return d, err
	}
	generation := map[string]any{}
	maps.Copy(config, map[string]any{"attention_dropout": 0.0,
		"initializer_range": decimal(c.Settings.InitStd), "use_cache": true,
		// null, for SmolLM3 has a default that may not be below vocab_size
		"pad_token_id": nil})
	for key, ids := range map[string][]int32{beginKey: c.Tokens.Begin, endKey: c.Tokens.End,
		"pad_token_id": c.Tokens.Pad} {
		if len(ids) > 0 {
			config[key], generation[key] = oneOrMore(ids), oneOrMore(ids)
		}
	}
	if d.Config, err = encode(config); err == nil {
		d.Generation, err = encode(generation)
	}
	return d, err
}

// computed returns the entries of config.json that say all that the model computes, so that no
// reader uses a default of its own. transformers 5 reads rope_parameters; transformers 4 and mlx-lm
// read rope_theta and rope_scaling.
func (c *Config) computed() (map[string]any, error) {
	s := c.Settings
	s.FillIn()
	f, err := familyOf(s.Kind)
	for _, own := range []family{mistralFamily, ministralFamily} { // are Llamas, too
		if f.kind == own.kind &&
			(c.Architecture == own.architecture || s.Window > 0 && !f.windowed) {
			f = own
		}
	}
	m := shape(s)
	maps.Copy(m, wavelengths(s))
	maps.Copy(m, map[string]any{"architectures": []string{f.architecture}, "model_type": f.modelType,
		cmp.Or(f.activationKey, activationKey): activation(s), "mlp_bias": false,
		positionsKey: c.MaxPositions, parametersKey: ropeParameters(s)})
	if _, biased := f.tensors["layers.*.attn.qkv_bias"]; !biased {
		m["attention_bias"] = false
	}
	if f.describe != nil {
		maps.Copy(m, f.describe(s, c.MaxPositions))
	}
	return m, err
}

// decimal returns a number with a decimal point, without which transformers takes it for an integer
// and refuses it.
func decimal(x float64) jsontext.Value {
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return jsontext.Value(text)
}

// activation returns transformers' name of the gate's activation.
func activation(s architecture.Settings) string {
	if s.GELU() {
		return "gelu_pytorch_tanh"
	}
	return "silu"
}

// shape returns the keys of a model's sizes and of other settings that training does not change.
func shape(s architecture.Settings) map[string]any {
	m := map[string]any{"hidden_size": s.Width, "num_hidden_layers": s.Layers,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads,
		"head_dim": s.HeadSize, "intermediate_size": s.Hidden, vocabKey: s.Vocab,
		"rms_norm_eps": s.NormEps, tiedKey: s.Head == "tied"}
	switch s.Kind {
	case architecture.KindGranite:
		s.AttentionMultiplier = s.ScoreScale()
		for key, x := range multipliers(&s) {
			m[key] = cmp.Or(*x, 1)
		}
	case architecture.KindGemma2, architecture.KindGemma3:
		const digits = 1e6 // a factor, 1/√scalar, has rounded it
		m[scalarKey] = math.Round(digits/(s.ScoreScale()*s.ScoreScale())) / digits
		for key, x := range caps(&s) {
			if m[key] = decimal(*x); *x == 0 {
				m[key] = nil
			}
		}
	}
	return m
}

// wavelengths returns the keys of rotary positions in the form of transformers 4.
func wavelengths(s architecture.Settings) map[string]any {
	var scaling any // null without scaling
	if s.RopeFactor > 1 {
		keys := map[string]any{"rope_type": s.RopeScaling, "factor": s.RopeFactor}
		switch s.RopeScaling {
		case architecture.ScalingLlama3:
			keys["low_freq_factor"], keys["high_freq_factor"] = s.RopeLow, s.RopeHigh
			keys["original_max_position_embeddings"] = s.RopeOriginal
		case architecture.ScalingYaRN:
			keys["beta_slow"], keys["beta_fast"] = s.RopeLow, s.RopeHigh
			keys["original_max_position_embeddings"] = s.RopeOriginal
		}
		scaling = keys
	}
	return map[string]any{thetaKey: s.RopeTheta, scalingKey: scaling}
}

// ropeParameters returns the value of rope_parameters, the form of transformers 5.
func ropeParameters(s architecture.Settings) map[string]any {
	plain := func(theta float64) map[string]any {
		return map[string]any{"rope_type": "default", thetaKey: theta}
	}
	parameters := plain(s.RopeTheta)
	if scaling, ok := wavelengths(s)[scalingKey].(map[string]any); ok {
		maps.Copy(parameters, scaling)
	}
	if !s.LocalRope() {
		return parameters
	}
	return map[string]any{fullAttention: parameters,
		slidingAttention: plain(s.LayerRope(0).RopeTheta)}
}
