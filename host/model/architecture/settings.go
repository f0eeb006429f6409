// Package architecture describes the models: the settings of each kind and their keys, presets, the
// parameters that follow from the settings and their initialization, and the angles of rotary
// position embeddings. Unlike package host/model, it writes no programs, so that readers of
// configurations or checkpoints need no tensor engine.
package architecture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// Kinds of models, by their names in a configuration.
const (
	KindGemma     = "gemma"
	KindGemma2    = "gemma2"
	KindGemma3    = "gemma3"
	KindGranite   = "granite"
	KindLlama     = "llama"
	KindOLMo2     = "olmo2"
	KindOLMo3     = "olmo3"
	KindQwen2     = "qwen2"
	KindQwen3     = "qwen3"
	KindSmolLM3   = "smollm3"
	KindQuadratic = "quadratic"
	KindToy       = "toy"
)

// Kinds of models that share keys.
var (
	Kinds = slices.Concat(Languages, Problems)
	// are trained on text
	Languages = []string{KindGemma, KindGemma2, KindGemma3, KindGranite, KindLlama, KindOLMo2,
		KindOLMo3, KindQwen2, KindQwen3, KindSmolLM3}
	windowed = []string{KindGemma2, KindGemma3, KindLlama, KindOLMo3}
	scaled   = []string{KindGemma2, KindGemma3, KindGranite}
	capped   = []string{KindGemma2}
	granites = []string{KindGranite}
	// are mathematical functions, which need no data
	Problems   = []string{KindQuadratic, KindToy}
	quadratics = []string{KindQuadratic}
)

const defaultInitStd = 0.02

// Limits on the sizes of language models.
const (
	MaxLayers = 4096
	MaxWidth  = 1 << 20
	MaxHeads  = 1 << 16
	MaxHidden = 1 << 22
	MaxVocab  = 1 << 24
)

// maxDimension and maxRows bound the shapes of problems. A is a dense matrix whose eigenvectors are
// computed.
const maxDimension, maxRows = 4096, 4096

// Settings is the table [model] of a configuration, from which model.New makes the model. Fields
// that belong to other kinds of models are zero, except that Context is 1 for problems.
type Settings struct {
	Kind string // one of Kinds

	// Language models.
	Preset string // name of a [Preset], or "" for free sizes
	Layers int    // transformer blocks
	Width  int    // features of the residual stream
	Heads  int    // attention heads
	// key-value heads, each for Heads/KVHeads query heads (Ainslie et al., 2023); 0 becomes Heads
	KVHeads  int
	HeadSize int // features of a head, an even number; 0 becomes Width/Heads
	Hidden   int // features inside the feed-forward layer; 0 becomes SwiGLUHidden(Width)
	Vocab    int // number of token ids; 0: as many as the data's tokenizer has
	Context  int // tokens per sequence

	RopeTheta float64 // base θ of the rotary position embedding
	RopePairs Pairing
	// RopeFactor stretches the long wavelengths, so that a model trained on short sequences works
	// on long ones: wavelengths up to RopeOriginal/RopeHigh are unchanged; those from
	// RopeOriginal/RopeLow on become RopeFactor times as long; in between, both frequencies are
	// interpolated, as RopeScaling says. A factor of 1 changes nothing.
	RopeScaling                   Scaling
	RopeFactor, RopeLow, RopeHigh float64
	RopeOriginal                  int // context, in tokens, for which the wavelengths were chosen

	// Window is the number of tokens that attention reads, the token itself included, in the layers
	// that have a window ([Settings.LayerWindow]); 0: all before it.
	Window int

	// AttentionMultiplier is the factor of the products of queries and keys; 0: 1/√HeadSize.
	AttentionMultiplier float64
	// ScoreCap c bounds the scores of attention, x, by c·tanh(x/c), and LogitCap the logits; 0: no.
	ScoreCap, LogitCap float64
	// Factors of the embedding and of what a layer adds to the residual stream, and the divisor of
	// the logits; 0: 1.
	EmbeddingMultiplier, ResidualMultiplier, LogitsScaling float64

	NormEps float64 // added to the mean square in RMSNorm
	InitStd float64 // standard deviation of the initial weights
	Head    string  // "own", or "tied": the embedding is the output head, too (Press and Wolf, 2017)

	// Problems without data. A nil list stands for random values. The point x has Rows rows, which
	// are independent problems with the same A.
	Dimension, Rows int
	// κ(A), used without Spectrum: the eigenvalues are log-spaced from 1/κ to 1
	Condition   float64
	Spectrum    []float64 // eigenvalues of A
	Optimum     []float64 // x*, row by row; nil: from N(0, I)
	ProblemSeed int64     // seed for the eigenvectors and the optimum
	Start       []float64 // initial x, row by row; nil: from N(0, StartStd²·I)
	StartStd    float64
	Noise       float64 // standard deviation of the noise on each element of the gradient
}

// Language reports whether the model is trained on text, and so needs data.
func (s Settings) Language() bool { return slices.Contains(Languages, s.Kind) }

// Keys returns the keys of the table [model].
func (s *Settings) Keys() []schema.Key { return slices.Concat(s.languageKeys(), s.problemKeys()) }

func (s *Settings) languageKeys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &s.Kind, Is: schema.OneOf(Kinds...), Default: KindLlama,
			Doc: "llama: that of the QuEST and CAGE papers, and Mistral; qwen2: with biases of queries, " +
				"keys and values; qwen3: norms on their heads; olmo2: norms after layers; olmo3: windows; " +
				"smollm3: layers without positions; granite: factors; gemma: GELU; gemma2: norms around " +
				"layers, windows, caps; gemma3: qwen3's norms, no caps; quadratic, toy: no data"},
		{Name: "preset", To: &s.Preset, Is: schema.OneOf(append(PresetNames(Languages...), "")...),
			For: Languages, Default: "",
			Doc: "size by name, of llama and olmo2; empty: layers, width, heads and context are given"},
		{Name: "layers", To: &s.Layers, Is: schema.From(1, MaxLayers), For: Languages,
			Doc: "transformer blocks"},
		{Name: "width", To: &s.Width, Is: schema.From(2, MaxWidth), For: Languages,
			Doc: "width of the residual stream"},
		{Name: "heads", To: &s.Heads, Is: schema.From(1, MaxHeads), For: Languages,
			Doc: "attention heads"},
		{Name: "kv_heads", To: &s.KVHeads, Is: schema.From(0, MaxHeads), For: Languages, Default: 0,
			Doc: "heads of keys and values, each shared by heads/kv_heads heads of queries; 0: heads"},
		{Name: "head_size", To: &s.HeadSize, Is: schema.From(0, MaxHeads), For: Languages, Default: 0,
			Doc: "features of a head, an even number; 0: width/heads"},
		{Name: "hidden", To: &s.Hidden, Is: schema.From(0, MaxHidden), For: Languages, Default: 0,
			Doc: "feed-forward width; 0: the SwiGLU rule, 8/3 of the width rounded up to a multiple of 256"},
		{Name: "vocab", To: &s.Vocab, Is: schema.From(0, MaxVocab), For: Languages, Default: 0,
			Doc: "vocabulary size; 0: that of the data"},
		{Name: "context", To: &s.Context, Is: schema.From(1, 1<<20), For: Languages,
			Doc: "tokens per sequence"},
		{Name: "rope_theta", To: &s.RopeTheta, Is: schema.Between(1, 1e12), For: Languages,
			Derive:  func() any { return families[s.Kind].ropeTheta },
			Derived: "`10000`; olmo2, olmo3: `500000`; gemma3, qwen2, qwen3: `1000000`; smollm3: `5000000`",
			Doc:     "base of the rotary position embedding"},
		{Name: "rope_pairs", To: &s.RopePairs, Is: schema.OneOf(Interleaved, HalfSplit), For: Languages,
			Derive:  func() any { return families[s.Kind].ropePairs },
			Derived: "llama: `interleaved`; others: `half`",
			Doc: "the two features of a head that are rotated together: adjacent ones, " +
				"or one from each half"},
		{Name: "rope_factor", To: &s.RopeFactor, Is: schema.Between(1, 1e6), For: Languages, Default: 1.0,
			Doc: "factor by which the long wavelengths of positions grow; 1: none"},
		{Name: "rope_scaling", To: &s.RopeScaling, For: Languages,
			Is: schema.OneOf(ScalingLlama3, ScalingYaRN, ScalingLinear), Default: ScalingLlama3,
			Doc: "for rope_factor: llama3 interpolates the frequencies between both bounds by their " +
				"wavelengths; yarn by the number of the pair, and multiplies queries and keys by 1 + " +
				"ln(rope_factor)/10; linear stretches all"},
		{Name: "rope_low", To: &s.RopeLow, Is: schema.Above(0, 1e6), For: Languages, Default: 1.0,
			Doc: "wavelengths of at least rope_original/rope_low become longer by rope_factor"},
		{Name: "rope_high", To: &s.RopeHigh, Is: schema.Above(0, 1e6), For: Languages, Default: 4.0,
			Doc: "wavelengths up to rope_original/rope_high stay as they are; must be above rope_low"},
		{Name: "rope_original", To: &s.RopeOriginal, Is: schema.From(1, 1<<30), For: Languages,
			Default: 8192,
			Doc:     "for rope_factor: the context, in tokens, for which the wavelengths were chosen"},
		{Name: "window", To: &s.Window, Is: schema.From(0, 1<<30), For: windowed, Default: 0,
			Doc: "tokens that attention reads, the token itself included, in all layers of llama " +
				"(Mistral), 1 of 2 of gemma2, 3 of 4 of olmo3, 5 of 6 of gemma3; 0: all before it"},
		{Name: "attention_multiplier", To: &s.AttentionMultiplier, Is: schema.Between(0, 1e3),
			For: scaled, Default: 0.0,
			Doc: "factor of the products of queries and keys; 0: 1/√head_size"},
		{Name: "attn_logit_softcapping", To: &s.ScoreCap, Is: schema.Between(0, 1e6), For: capped,
			Default: 50.0, Doc: "c: scores x of attention become c·tanh(x/c); 0: none"},
		{Name: "final_logit_softcapping", To: &s.LogitCap, Is: schema.Between(0, 1e6), For: capped,
			Default: 30.0, Doc: "the same for logits"},
		{Name: "embedding_multiplier", To: &s.EmbeddingMultiplier, Is: schema.Above(0, 1e6),
			For: granites, Default: 1.0, Doc: "factor of the embedding"},
		{Name: "residual_multiplier", To: &s.ResidualMultiplier, Is: schema.Above(0, 1e6),
			For: granites, Default: 1.0, Doc: "factor of what layers add to the residual stream"},
		{Name: "logits_scaling", To: &s.LogitsScaling, Is: schema.Above(0, 1e6), For: granites,
			Default: 1.0, Doc: "divisor of the logits"},
		{Name: "norm_eps", To: &s.NormEps, Is: schema.Above(0, 1), For: Languages,
			Derive:  func() any { return families[s.Kind].normEps },
			Derived: "llama, granite: `0.00001`; others: `0.000001`",
			Doc:     "epsilon of RMSNorm"},
		{Name: "init_std", To: &s.InitStd, Is: schema.Above(0, 10), For: Languages,
			Default: defaultInitStd,
			Doc:     "standard deviation of the initial weights"},
		{Name: "head", To: &s.Head, Is: schema.OneOf("own", "tied"), For: Languages, Default: "own",
			Doc: "the matrix of the output head. tied: it is the embedding, as in the small models of " +
				"Llama 3, without decay"},
	}
}

func (s *Settings) problemKeys() []schema.Key {
	return []schema.Key{
		{Name: "dimension", To: &s.Dimension, Is: schema.From(1, maxDimension), For: quadratics,
			Default: 128,
			Doc:     "elements of a row of x"},
		{Name: "rows", To: &s.Rows, Is: schema.From(1, maxRows), For: quadratics, Default: 1,
			Doc: "rows of x, each a problem of its own with the same A; f is their sum"},
		{Name: "condition", To: &s.Condition, Is: schema.Between(1, 1e12), For: quadratics, Default: 10.0,
			Doc: "condition number κ of A, whose eigenvalues are spaced evenly in their logarithm from " +
				"1/κ to 1; without effect beside spectrum"},
		{Name: "spectrum", To: &s.Spectrum, Is: schema.Above(0, 1e12), For: quadratics,
			Optional: "by condition",
			Doc:      "the eigenvalues of A, as many as the dimension"},
		{Name: "optimum", To: &s.Optimum, Is: schema.Between(-1e12, 1e12), For: quadratics,
			Optional: "drawn from N(0, I) by problem_seed",
			Doc:      "x*, row by row"},
		{Name: "problem_seed", To: &s.ProblemSeed, Is: schema.From(0, math.MaxInt64), For: quadratics,
			Default: 0,
			Doc:     "seed of the eigenvectors of A and of x*"},
		{Name: "start", To: &s.Start, Is: schema.Between(-1e12, 1e12), For: Problems,
			Optional: "drawn from N(0, start_std²·I) by seed",
			Doc:      "x at the start, row by row"},
		{Name: "start_std", To: &s.StartStd, Is: schema.Between(0, 1e12), For: Problems, Default: 1.0,
			Doc: "standard deviation of x at the start; without effect beside start"},
		{Name: "noise", To: &s.Noise, Is: schema.Between(0, 1e12), For: Problems,
			Derive:  func() any { return map[bool]float64{true: 0, false: 0.01}[s.Kind == KindToy] },
			Derived: "`0.01`; toy: `0`",
			Doc:     "standard deviation of the noise on each element of the gradient, by seed"},
	}
}

// FillIn replaces zeros by the defaults that they stand for, and sets the sizes of problems without
// data.
func (s *Settings) FillIn() {
	if s.Kind == KindToy {
		s.Dimension, s.Rows = 1, 1
	}
	if !s.Language() {
		s.Context = 1
		return
	}
	f := families[s.Kind]
	s.Hidden, s.KVHeads = cmp.Or(s.Hidden, SwiGLUHidden(s.Width)), cmp.Or(s.KVHeads, s.Heads)
	s.HeadSize = cmp.Or(s.HeadSize, s.Width/max(1, s.Heads))
	s.RopeScaling = cmp.Or(s.RopeScaling, ScalingLlama3)
	s.RopeTheta, s.RopePairs = cmp.Or(s.RopeTheta, f.ropeTheta), cmp.Or(s.RopePairs, f.ropePairs)
	s.NormEps, s.InitStd = cmp.Or(s.NormEps, f.normEps), cmp.Or(s.InitStd, defaultInitStd)
}

// FindPreset returns the preset that the settings name, or an empty one if they name none. It
// reports a problem if the kind of model does not have the preset.
func (s Settings) FindPreset() (p Preset, problems schema.Problems) {
	p, ok := LookupPreset(s.Kind, s.Preset)
	hint := "this kind has no presets: give model.layers, model.width, model.heads and model.context"
	if names := PresetNames(s.Kind); len(names) > 0 {
		hint = "want one of " + schema.Quoted(names)
	}
	problems.Unless(ok || s.Preset == "" || !s.Language(), schema.Problem{Key: "model.preset",
		Found: fmt.Sprintf("the string %q, but %s has no such size", s.Preset, s.Kind), Hint: hint})
	return p, problems
}

// Check reports conflicting keys. It must be called before FillIn.
func (s Settings) Check() schema.Problems {
	if s.Language() {
		return s.checkSizes()
	}
	if s.Kind == KindToy {
		s.Dimension, s.Rows = 1, 1
	}
	return s.checkLists()
}

// checkSizes rejects inconsistent sizes, and sizes that contradict the named preset.
func (s Settings) checkSizes() (out schema.Problems) {
	if p, ok := LookupPreset(s.Kind, s.Preset); ok {
		for _, size := range []struct {
			key       string
			got, want int
		}{{"layers", s.Layers, p.Layers}, {"width", s.Width, p.Width}, {"heads", s.Heads, p.Heads},
			{"hidden", s.Hidden, p.Hidden}} {
			// hidden = 0 stands for the rule that determined the presets' sizes.
			out.Unless(size.got == size.want || size.key == "hidden" && size.got == 0,
				schema.Problem{Key: "model." + size.key,
					Found: fmt.Sprintf("the integer %d, but preset %s sets %d", size.got, p.Name, size.want),
					Hint:  "leave the key out, or leave model.preset out and give all sizes"})
		}
	}
	out.Unless(s.RopeHigh > s.RopeLow, schema.Problem{Key: "model.rope_high",
		Found: schema.Describe(s.RopeHigh) + " with model.rope_low = " + schema.Decimal(s.RopeLow),
		Hint:  "want a number above model.rope_low"})
	if s.Heads == 0 || s.Width == 0 {
		return out
	}
	out.Unless(s.KVHeads == 0 || s.Heads%s.KVHeads == 0, schema.Problem{Key: "model.kv_heads",
		Found: fmt.Sprintf("%d key-value heads for %d heads", s.KVHeads, s.Heads),
		Hint:  "want a divisor of model.heads"})
	out.Unless(s.HeadSize%2 == 0, schema.Problem{Key: "model.head_size",
		Found: fmt.Sprintf("the odd number %d", s.HeadSize), Hint: "want an even number"})
	out.Unless(s.HeadSize > 0 || s.Width%s.Heads == 0 && s.Width/s.Heads%2 == 0,
		schema.Problem{Key: "model.heads",
			Found: fmt.Sprintf("%d heads for a width of %d", s.Heads, s.Width),
			Hint:  "want width/heads to be an even integer, or model.head_size"})
	return out
}

func (s Settings) checkLists() (out schema.Problems) {
	for _, l := range []struct {
		key        string
		have, want int
		words      string
	}{
		{"model.spectrum", len(s.Spectrum), s.Dimension, "as many as model.dimension"},
		{"model.optimum", len(s.Optimum), s.Rows * s.Dimension, "model.rows × model.dimension"},
		{"model.start", len(s.Start), s.Rows * s.Dimension, "model.rows × model.dimension"},
	} {
		out.Unless(l.have == 0 || l.have == l.want, schema.Problem{Key: l.key,
			Found: fmt.Sprintf("%d numbers", l.have), Hint: fmt.Sprintf("want %d: %s", l.want, l.words)})
	}
	return out
}

// SwiGLUHidden returns the usual number of features inside a feed-forward layer with SwiGLU: 8/3 of
// the width, rounded up to a multiple of 256. Three matrices of that size have as many elements as
// two with four times the width.
func SwiGLUHidden(width int) int { return (8*width/3 + 255) / 256 * 256 }

// Pairing selects the pairs of features of a head that the rotary position embedding rotates.
// Weights are converted between pairings by permuting rows.
type Pairing string

// Possible values of Pairing.
const (
	Interleaved Pairing = "interleaved" // features 2i and 2i+1
	HalfSplit   Pairing = "half"        // features i and size/2 + i
)

// Reorder converts a list of features from one pairing to another, head by head, for heads of the
// given size.
func Reorder(features []int, size int, from, to Pairing) []int {
	out, half := slices.Clone(features), size/2
	for at := range features {
		i := at % size // within the head
		switch head := at - i; {
		case from == to:
		case to == HalfSplit:
			out[at] = features[head+i%half*2+i/half]
		default:
			out[at] = features[head+i%2*half+i/2]
		}
	}
	return out
}

// Scaling is a rule by which RopeFactor stretches wavelengths.
type Scaling string

// Possible values of Scaling.
const (
	ScalingLlama3 Scaling = "llama3" // Grattafiori et al., 2024
	ScalingYaRN   Scaling = "yarn"   // Peng et al., 2023
	ScalingLinear Scaling = "linear" // Chen et al., 2023
)

// RopeMagnitude is the factor of rotated queries and keys.
func (s Settings) RopeMagnitude() float64 {
	if s.RopeScaling == ScalingYaRN && s.RopeFactor > 1 {
		return 0.1*math.Log(s.RopeFactor) + 1
	}
	return 1
}

// ByPosition applies f, such as the cosine, to the angles of the rotary position embedding at
// positions from 0 on, and multiplies by the factor of YaRN. The result is [positions, size/2],
// where size is the head size.
func (s Settings) ByPosition(positions int, f func(float64) float64) []float32 {
	frequencies, magnitude := s.RopeFrequencies(), s.RopeMagnitude()
	values := make([]float32, 0, positions*len(frequencies))
	for position := range positions {
		for _, frequency := range frequencies {
			values = append(values, float32(magnitude*f(float64(position)*frequency)))
		}
	}
	return values
}

// RopeFrequencies returns the angle per position of each pair of features, θ^(−2i/size) for i =
// 0 … size/2−1, scaled by RopeFactor; zeros if θ is 0.
func (s Settings) RopeFrequencies() []float64 {
	frequencies := make([]float64, s.HeadSize/2)
	if s.RopeTheta == 0 {
		return frequencies
	}
	for i := range frequencies {
		f := math.Pow(s.RopeTheta, -2*float64(i)/float64(s.HeadSize))
		if s.RopeFactor > 1 {
			share := s.ropeShare(i, f)
			f = (1-share)*f/s.RopeFactor + share*f
		}
		frequencies[i] = f
	}
	return frequencies
}

// ropeShare returns the share of the unchanged frequency in that of the pair i.
func (s Settings) ropeShare(i int, frequency float64) float64 {
	within := func(x float64) float64 { return min(1, max(0, x)) }
	switch s.RopeScaling {
	case ScalingLinear:
		return 0
	case ScalingYaRN:
		// the pair that has so many periods in the original context, not rounded
		pair := func(periods float64) float64 {
			return float64(s.HeadSize) / 2 *
				math.Log(float64(s.RopeOriginal)/(2*math.Pi*periods)) / math.Log(s.RopeTheta)
		}
		first := max(0, math.Floor(pair(s.RopeHigh)))
		last := min(float64(s.HeadSize-1), math.Ceil(pair(s.RopeLow)))
		if first == last {
			last += 0.001 // as others do
		}
		return 1 - within((float64(i)-first)/(last-first))
	}
	periods := float64(s.RopeOriginal) * frequency / (2 * math.Pi) // in the original context
	return within((periods - s.RopeLow) / (s.RopeHigh - s.RopeLow))
}

// Recompute selects the intermediate values that the backward pass of a language model recomputes,
// so that the forward pass need not save them.
type Recompute string

// Possible values of Recompute, from the least to the most recomputation.
const (
	RecomputeNone      Recompute = "none"
	RecomputeAttention Recompute = "attention" // queries, keys, values and scores of each layer
	RecomputeBlocks    Recompute = "blocks"    // everything inside each block (gradient checkpointing)
)
