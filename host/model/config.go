package model

import "strings"

// Defaults of a [LlamaConfig].
const (
	DefaultVocabulary  = 32000 // the Llama-2 tokenizer's
	DefaultNormEpsilon = 1e-5
	DefaultRopeTheta   = 10000
	DefaultInitStd     = 0.02
)

// LlamaConfig is the shape of a [Llama].
type LlamaConfig struct {
	Layers      int          // transformer blocks
	Heads       int          // attention heads; width/heads, the size of a head, must be even
	KeyHeads    int          // heads of keys and values, each for heads/key-heads heads of queries (Ainslie et al., 2023); 0: as many as heads
	Width       int          // features of the residual stream
	Hidden      int          // features inside the feed-forward layer; 0: 8·width/3, rounded up to a multiple of 256
	Vocabulary  int          // token ids; 0: 32000
	NormEpsilon float64      // added to the mean square in RMSNorm; 0: 1e-5
	RopeTheta   float64      // base of the rotary position embedding's wavelengths; 0: 10000
	RopePairs   Pairing      // of the rotary position embedding; "": Interleaved
	RopeScaling *RopeScaling // of its wavelengths; nil: none
	InitStd     float64      // standard deviation of weights at the start; 0: 0.02
	TiedHead    bool         // whether the embedding is the output head too (Press and Wolf, 2017), as in the small models of Llama 3
	Recompute   bool         // compute each block anew in the backward pass instead of keeping what it computed
}

// llamaPresets are the sizes of the QuEST and CAGE papers' pre-training runs, by their nominal number of parameters
// without embeddings. All have heads of 128 features.
var llamaPresets = []preset[LlamaConfig]{
	{"30M", LlamaConfig{Layers: 6, Heads: 5, Width: 640}},
	{"50M", LlamaConfig{Layers: 7, Heads: 6, Width: 768}},
	{"100M", LlamaConfig{Layers: 8, Heads: 8, Width: 1024}},
	{"200M", LlamaConfig{Layers: 10, Heads: 10, Width: 1280}},
	{"430M", LlamaConfig{Layers: 13, Heads: 13, Width: 1664}},
	{"800M", LlamaConfig{Layers: 16, Heads: 16, Width: 2048}},
}

// LlamaPresets lists the names that [LlamaPreset] knows, smallest first.
func LlamaPresets() []string { return presetNames(llamaPresets) }

// LlamaPreset returns the shape of the named size, "30M" to "800M", with the defaults left to fill in.
func LlamaPreset(name string) (LlamaConfig, error) { return findPreset(llamaPresets, name) }

// WithDefaults returns the shape with every zero that has a default replaced by it.
func (c LlamaConfig) WithDefaults() LlamaConfig {
	c.KeyHeads = orDefault(c.KeyHeads, c.Heads)
	c.Hidden = orDefault(c.Hidden, swiGLUHidden(c.Width, 1))
	c.Vocabulary = orDefault(c.Vocabulary, DefaultVocabulary)
	c.NormEpsilon = orDefault(c.NormEpsilon, DefaultNormEpsilon)
	c.RopeTheta = orDefault(c.RopeTheta, DefaultRopeTheta)
	c.RopePairs = orDefault(c.RopePairs, Interleaved)
	c.InitStd = orDefault(c.InitStd, DefaultInitStd)
	return c
}

// Validate reports everything that is wrong with the shape.
func (c LlamaConfig) Validate() error { return c.WithDefaults().shape().validate() }

func (c LlamaConfig) shape() shape {
	return shape{
		layers: c.Layers, heads: c.Heads, keyHeads: c.KeyHeads, width: c.Width, hidden: c.Hidden, vocabulary: c.Vocabulary,
		epsilon: c.NormEpsilon, theta: c.RopeTheta, initStd: c.InitStd, pairing: c.RopePairs, scaling: c.RopeScaling,
		tied: c.TiedHead, recompute: c.Recompute,
	}
}

// Defaults of an [OLMo2Config], where they are not those of a [LlamaConfig].
const (
	DefaultOLMo2Vocabulary  = 100352 // OLMo 2's 100278, rounded up to a multiple of 128
	DefaultOLMo2NormEpsilon = 1e-6
	DefaultOLMo2RopeTheta   = 500000
)

// OLMo2Config is the shape of an [OLMo2]. Its fields mean what those of [LlamaConfig] do.
type OLMo2Config struct {
	Layers      int
	Heads       int
	KeyHeads    int
	Width       int
	Hidden      int
	Vocabulary  int     // 0: 100352
	NormEpsilon float64 // 0: 1e-6
	RopeTheta   float64 // 0: 500000
	RopePairs   Pairing // "": HalfSplit
	RopeScaling *RopeScaling
	InitStd     float64 // before the distribution is truncated at three times it; 0: 0.02
	TiedHead    bool
	Recompute   bool
}

// olmo2Presets are sizes of OLMo-core, whose names count the embedding too, and the one of the CAGE paper's comparison
// of optimizers, which does not publish its shape: 50M is as deep and wide as the Llama of that name.
var olmo2Presets = []preset[OLMo2Config]{
	{"30M", OLMo2Config{Layers: 4, Heads: 8, Width: 256}},
	{"50M", OLMo2Config{Layers: 7, Heads: 6, Width: 768}},
	{"60M", OLMo2Config{Layers: 8, Heads: 8, Width: 384, Hidden: swiGLUHidden(384, 1.5)}},
}

// OLMo2Presets lists the names that [OLMo2Preset] knows, smallest first.
func OLMo2Presets() []string { return presetNames(olmo2Presets) }

// OLMo2Preset returns the shape of the named size, "30M" to "60M", with the defaults left to fill in.
func OLMo2Preset(name string) (OLMo2Config, error) { return findPreset(olmo2Presets, name) }

// WithDefaults returns the shape with every zero that has a default replaced by it.
func (c OLMo2Config) WithDefaults() OLMo2Config {
	c.Vocabulary = orDefault(c.Vocabulary, DefaultOLMo2Vocabulary)
	c.NormEpsilon = orDefault(c.NormEpsilon, DefaultOLMo2NormEpsilon)
	c.RopeTheta = orDefault(c.RopeTheta, DefaultOLMo2RopeTheta)
	c.RopePairs = orDefault(c.RopePairs, HalfSplit)
	return OLMo2Config(LlamaConfig(c).WithDefaults())
}

// Validate reports everything that is wrong with the shape.
func (c OLMo2Config) Validate() error { return c.WithDefaults().shape().validate() }

func (c OLMo2Config) shape() shape { return LlamaConfig(c).shape() }

func joined(names []string) string { return strings.Join(names, ", ") }
