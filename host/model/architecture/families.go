package architecture

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
)

// Params lists the parameters of the model in order, with sizes completed by [Settings.FillIn]. A
// language model has the embedding, the parameters of each block, the final norm, and the head
// unless it is tied. A problem has one parameter, x [rows, dimension], without weight decay. It is
// a matrix, so that quantizers can scale its rows.
func (s Settings) Params() []Param {
	s.FillIn()
	if !s.Language() {
		p := Param{Name: "x", Dims: []int{s.Rows, s.Dimension}, Role: RoleMatrix, InitStd: s.StartStd}
		p.Quantized = true
		if s.Start != nil {
			p.Start = Float32s(s.Start)
		}
		return []Param{p}
	}
	vocabulary := func(name string, role Role) Param {
		return s.start(Param{Name: name, Dims: []int{s.Vocab, s.Width}, Role: role, InitStd: s.InitStd})
	}
	params := []Param{vocabulary("embedding", RoleEmbedding)}
	for layer := range s.Layers {
		params = append(params, s.BlockParams(layer)...)
	}
	params = append(params, s.normParam("norm", s.Width))
	if !s.Tied() {
		params = append(params, vocabulary("head", RoleHead))
	}
	return params
}

// LayerOf returns the number of the block that contains the parameter or activation with the given
// name, or -1 if none does.
func LayerOf(name string) int {
	rest, inBlock := strings.CutPrefix(name, "layers.")
	number, _, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	if !inBlock || err != nil {
		return -1
	}
	return layer
}

// LayerPrefix returns the prefix of the names of parameters and activations of a block.
func LayerPrefix(layer int) string { return fmt.Sprintf("layers.%d.", layer) }

// features describes how kinds of language models differ.
type features struct {
	ropeTheta      float64 // defaults
	ropePairs      Pairing
	normEps        float64
	postNorm       bool    // norms follow the layers of a block, instead of preceding them
	bothNorms      bool    // norms precede and follow the layers
	normOffset     bool    // the gain of a norm is 1 more than its parameter
	queryKeyNorm   bool    // queries and keys are normalized before their rotation
	headNorm       bool    // that norm is over each head, not over all heads together
	qkvBias        bool    // queries, keys and values have a bias
	noRopeEvery    int     // every such layer has no rotary positions; 0: all have
	globalEvery    int     // layers but every such one have a window ([Settings.Window]); 0: all have
	localRope      bool    // these layers have positions of their own: without RopeFactor
	localTheta     float64 // and with this RopeTheta; 0: the model's
	gelu           bool    // the gate is GELU, in its approximation by tanh, instead of SiLU
	scaledInput    bool    // the embedding is multiplied by √width
	truncatedStart bool    // all weights are initialized from one truncated normal distribution
}

// families maps each kind to its features. Llama is the network of the QuEST and CAGE pre-training
// runs (Panferov et al. 2025; Tabesh et al. 2025); with grouped-query attention, half-split pairs
// and stretched wavelengths it is Llama 3 (Grattafiori et al., 2024). OLMo2 (Team OLMo, 2025) is
// the one on which the CAGE paper compares optimizers. Qwen2 is that of Qwen2 and Qwen2.5 (Yang et
// al., 2024), and Qwen3 that of its dense models (Yang et al., 2025). SmolLM3 (Hugging Face, 2025)
// is a Llama with layers without positions. OLMo3 (Team OLMo, 2025) is OLMo2 with windows. Gemma
// and Gemma2 (Gemma Team, 2024) and Gemma3 (Gemma Team, 2025) are text models. Granite (IBM, 2024)
// is a Llama with factors.
var families = map[string]features{
	KindGemma: {ropeTheta: 10000, ropePairs: HalfSplit, normEps: 1e-6, normOffset: true, gelu: true,
		scaledInput: true},
	KindGemma2: {ropeTheta: 10000, ropePairs: HalfSplit, normEps: 1e-6, bothNorms: true,
		normOffset: true, globalEvery: 2, gelu: true, scaledInput: true},
	KindGemma3: {ropeTheta: 1e6, ropePairs: HalfSplit, normEps: 1e-6, bothNorms: true,
		normOffset: true, queryKeyNorm: true, headNorm: true, localRope: true, localTheta: 1e4,
		globalEvery: 6, gelu: true, scaledInput: true},
	KindGranite: {ropeTheta: 10000, ropePairs: HalfSplit, normEps: 1e-5},
	KindLlama:   {ropeTheta: 10000, ropePairs: Interleaved, normEps: 1e-5},
	KindOLMo2: {ropeTheta: 500000, ropePairs: HalfSplit, normEps: 1e-6, postNorm: true,
		queryKeyNorm: true, truncatedStart: true},
	KindOLMo3: {ropeTheta: 500000, ropePairs: HalfSplit, normEps: 1e-6, postNorm: true,
		queryKeyNorm: true, globalEvery: 4, localRope: true, truncatedStart: true},
	KindQwen2: {ropeTheta: 1e6, ropePairs: HalfSplit, normEps: 1e-6, qkvBias: true},
	KindQwen3: {ropeTheta: 1e6, ropePairs: HalfSplit, normEps: 1e-6, queryKeyNorm: true,
		headNorm: true},
	KindSmolLM3: {ropeTheta: 5e6, ropePairs: HalfSplit, normEps: 1e-6, noRopeEvery: 4},
}

// PostNorm reports whether the norms of a block normalize the outputs of its layers, instead of
// their inputs.
func (s Settings) PostNorm() bool { return families[s.Kind].postNorm }

// NormOffset returns what is added to the parameter of a norm to get its gain.
func (s Settings) NormOffset() float64 {
	if families[s.Kind].normOffset {
		return 1
	}
	return 0
}

// GELU reports whether the gate is GELU, in its approximation by tanh, instead of SiLU.
func (s Settings) GELU() bool { return families[s.Kind].gelu }

// InputScale returns the factor of the embedding.
func (s Settings) InputScale() float64 {
	if families[s.Kind].scaledInput {
		return math.Sqrt(float64(s.Width))
	}
	return cmp.Or(s.EmbeddingMultiplier, 1)
}

// ResidualScale returns the factor of what a layer adds to the residual stream.
func (s Settings) ResidualScale() float64 { return cmp.Or(s.ResidualMultiplier, 1) }

// LogitScale returns the factor of the logits.
func (s Settings) LogitScale() float64 { return 1 / cmp.Or(s.LogitsScaling, 1) }

// ScoreScale returns the factor of the products of queries and keys.
func (s Settings) ScoreScale() float64 {
	return cmp.Or(s.AttentionMultiplier, 1/math.Sqrt(float64(s.HeadSize)))
}

// Windowed reports whether models of this kind may have a window.
func (s Settings) Windowed() bool { return slices.Contains(windowed, s.Kind) }

// LayerWindow returns the number of tokens that attention reads in a layer, the token itself
// included, in sequences of the given length; 0: all before it.
func (s Settings) LayerWindow(layer, length int) int {
	if s.Window >= length || families[s.Kind].globalEvery != 0 && !s.Local(layer) {
		return 0
	}
	return s.Window
}

// Local reports whether a layer has a window, unlike other layers.
func (s Settings) Local(layer int) bool {
	f := families[s.Kind]
	return f.globalEvery != 0 && (layer+1)%f.globalEvery != 0
}

// LocalRope reports whether layers with a window have positions of their own.
func (s Settings) LocalRope() bool { return families[s.Kind].localRope }

// LayerRope returns the settings of the rotary positions of a layer. RopeTheta is 0 if queries and
// keys are not rotated.
func (s Settings) LayerRope(layer int) Settings {
	f := families[s.Kind]
	switch {
	case f.localRope && s.Local(layer):
		s.RopeTheta, s.RopeFactor = cmp.Or(f.localTheta, s.RopeTheta), 1
	case f.noRopeEvery != 0 && (layer+1)%f.noRopeEvery == 0:
		s.RopeTheta, s.RopeFactor = 0, 1
	}
	return s
}

// RopeKey returns what the tables of [Settings.ByPosition] follow from, given the settings of a
// layer by [Settings.LayerRope].
func (s Settings) RopeKey() string {
	return fmt.Sprint(s.HeadSize, s.RopeTheta, s.RopeFactor, s.RopeScaling, " ", s.RopeLow, s.RopeHigh,
		s.RopeOriginal)
}

// BlockParams lists the parameters of a block. The rows of attn.qkv are first queries, then keys,
// then values, each head by head.
func (s Settings) BlockParams(layer int) []Param {
	f, prefix := families[s.Kind], LayerPrefix(layer)
	matrix := func(name string, std float64, out, in int) Param {
		return s.start(Param{Name: prefix + name, Dims: []int{out, in}, Role: RoleMatrix,
			Quantized: true, Decay: true, InitStd: std})
	}
	norm := func(name string, width int) Param { return s.normParam(prefix+name, width) }
	residualStd := s.InitStd
	if !f.truncatedStart { // so that the variance of the residual stream does not grow with depth
		residualStd /= math.Sqrt(2 * float64(s.Layers))
	}

	qkv := matrix("attn.qkv", s.InitStd, s.QueryWidth()+2*s.KeyWidth(), s.Width)
	qkv.Parts = []Part{{"q", s.QueryWidth()}, {"k", s.KeyWidth()}, {"v", s.KeyWidth()}}
	attention := []Param{qkv}
	if f.qkvBias {
		attention = append(attention, Param{Name: prefix + "attn.qkv_bias", Dims: qkv.Dims[:1],
			Role: RoleBias, Parts: qkv.Parts})
	}
	switch {
	case f.headNorm:
		attention = append(attention, norm("attn.q_norm", s.HeadSize), norm("attn.k_norm", s.HeadSize))
	case f.queryKeyNorm:
		attention = append(attention, norm("attn.q_norm", s.QueryWidth()),
			norm("attn.k_norm", s.KeyWidth()))
	}
	attention = append(attention, matrix("attn.out", residualStd, s.Width, s.QueryWidth()))
	feedForward := []Param{
		matrix("mlp.w1", s.InitStd, s.Hidden, s.Width),
		matrix("mlp.w2", s.InitStd, s.Hidden, s.Width),
		matrix("mlp.down", residualStd, s.Width, s.Hidden),
	}
	norms := [][]Param{{norm("attn_norm", s.Width)}, {norm("mlp_norm", s.Width)}}
	if f.bothNorms {
		return slices.Concat(norms[0], attention, []Param{norm("attn_post_norm", s.Width)}, norms[1],
			feedForward, []Param{norm("mlp_post_norm", s.Width)})
	}
	if f.postNorm {
		return slices.Concat(attention, norms[0], feedForward, norms[1])
	}
	return slices.Concat(norms[0], attention, norms[1], feedForward)
}

// start returns p with its initial distribution truncated at three standard deviations, if this
// kind of model does so.
func (s Settings) start(p Param) Param {
	if families[s.Kind].truncatedStart {
		p.InitCut = 3
	}
	return p
}

// Tied reports whether the embedding is the output head.
func (s Settings) Tied() bool { return s.Head == "tied" }

// QueryWidth returns the total width of the query heads, and thus of attention's output.
func (s Settings) QueryWidth() int { return s.Heads * s.HeadSize }

// KeyWidth returns the total width of the key heads; the value heads have the same width.
func (s Settings) KeyWidth() int { return s.KVHeads * s.HeadSize }

func (s Settings) normParam(name string, width int) Param {
	return Param{Name: name, Dims: []int{width}, Role: RoleNorm, InitMean: 1 - s.NormOffset()}
}

// Float32s rounds numbers to float32.
func Float32s(values []float64) []float32 {
	return lists.Map(values, func(v float64) float32 { return float32(v) })
}

// A Role is the function of a parameter in its model.
type Role string

// Roles of parameters.
const (
	RoleMatrix Role = "matrix" // weight of a linear layer inside a block
	// one row per token id; also the output projection if the head is tied
	RoleEmbedding Role = "embedding"
	RoleHead      Role = "head" // output projection, one row per token id
	RoleNorm      Role = "norm" // gain of a normalization
	RoleBias      Role = "bias" // added to the output of a linear layer
)

// A Param describes one parameter of a model.
type Param struct {
	Name string
	Dims []int // [out, in] for a matrix
	Role Role
	// the matrices stacked in a fused weight, from top to bottom; nil if it is a single matrix
	Parts     []Part
	Quantized bool    // whether the model uses its quantized form in products
	Decay     bool    // whether weight decay applies to it
	InitMean  float64 // the initial elements are drawn from N(InitMean, InitStd²)
	InitStd   float64 // 0: all elements are InitMean
	// draws farther from the mean than InitCut·InitStd are repeated; 0 means no truncation
	InitCut float64
	Start   []float32 // the initial elements themselves; nil: they are random
}

// A Part is one of the matrices in a fused weight.
type Part struct {
	Name string
	Rows int
}

// Size returns the number of elements.
func (p Param) Size() int {
	size := 1
	for _, d := range p.Dims {
		size *= d
	}
	return size
}

// Init returns the initial elements of the parameter, in row-major order, as [Param.Draw] sets
// them.
func (p Param) Init(seed uint64) []float32 {
	values := make([]float32, p.Size())
	p.Draw(seed, values)
	return values
}

// Draw sets values to the initial elements of the parameter, in row-major order. They depend only
// on the seed and on the parameter's name and size, so that parameters can be initialized in any
// order, and in parallel.
func (p Param) Draw(seed uint64, values []float32) {
	if p.Start != nil {
		copy(values, p.Start)
		return
	}
	rng := Random(seed, p.Name)
	for i := range values {
		if p.InitStd == 0 {
			values[i] = float32(p.InitMean)
			continue
		}
		z := rng.NormFloat64()
		for p.InitCut > 0 && math.Abs(z) > p.InitCut {
			z = rng.NormFloat64()
		}
		values[i] = float32(p.InitMean + p.InitStd*z)
	}
}

// Random returns the generator of the initial elements of the named parameter.
func Random(seed uint64, name string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(name)) // Never fails.
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

// CountParams adds up the sizes of the parameters for which keep returns true; nil keeps all.
func CountParams(params []Param, keep func(Param) bool) int {
	total := 0
	for _, p := range params {
		if keep == nil || keep(p) {
			total += p.Size()
		}
	}
	return total
}

// NonEmbedding counts the elements of all parameters except the embedding and the head: the N of
// scaling laws.
func NonEmbedding(params []Param) int {
	return CountParams(params, func(p Param) bool {
		return p.Role != RoleEmbedding && p.Role != RoleHead
	})
}
