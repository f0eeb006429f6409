package architecture

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Params lists the parameters of a model in its order, with the sizes completed by
// [Settings.FillIn]. A language model has the embedding, the parameters of each block, the final
// norm, and the head unless it is tied. A problem has the one parameter x, [rows, dimension], a
// matrix without weight decay, so that a quantizer scales its rows.
func (s Settings) Params() []Param {
	s.FillIn()
	if !s.Language() {
		p := Param{Name: "x", Dims: []int{s.Rows, s.Dimension}, Role: RoleMatrix, Quantized: true, InitStd: s.StartStd}
		if s.Start != nil {
			p.Start = Singles(s.Start)
		}
		return []Param{p}
	}
	vocabulary := func(name string, role Role) Param {
		p := Param{Name: name, Dims: []int{s.Vocab, s.Width}, Role: role, InitStd: s.InitStd}
		if s.Kind == KindOLMo2 {
			p = truncated(p)
		}
		return p
	}
	params := []Param{vocabulary("embedding", RoleEmbedding)}
	for layer := range s.Layers {
		params = append(params, s.BlockParams(layer)...)
	}
	params = append(params, normParam("norm", s.Width))
	if !s.Tied() {
		params = append(params, vocabulary("head", RoleHead))
	}
	return params
}

// LayerOf returns the number of the block that contains the parameter or activation of that name;
// -1 if none does.
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

// BlockParams lists the parameters of a block.
func (s Settings) BlockParams(layer int) []Param {
	switch prefix := LayerPrefix(layer); s.Kind {
	case KindLlama:
		return s.llamaBlock(prefix)
	case KindOLMo2:
		matrix := func(name string, out, in int) Param { return truncated(matrixParam(prefix+name, s.InitStd, out, in)) }
		return []Param{
			truncated(s.qkvParam(prefix)),
			normParam(prefix+"attn.q_norm", s.QueryWidth()),
			normParam(prefix+"attn.k_norm", s.KeyWidth()),
			matrix("attn.out", s.Width, s.QueryWidth()),
			normParam(prefix+"attn_norm", s.Width),
			matrix("mlp.w1", s.Hidden, s.Width),
			matrix("mlp.w2", s.Hidden, s.Width),
			matrix("mlp.down", s.Width, s.Hidden),
			normParam(prefix+"mlp_norm", s.Width),
		}
	case KindQwen3:
		norms := []Param{normParam(prefix+"attn.q_norm", s.HeadSize), normParam(prefix+"attn.k_norm", s.HeadSize)}
		return slices.Insert(s.llamaBlock(prefix), 2, norms...) // after attn.qkv
	}
	return nil
}

// NormsBehind reports whether the norms of a block follow its layers and normalize their outputs
// (post-norm), instead of their inputs.
func (s Settings) NormsBehind() bool { return s.Kind == KindOLMo2 }

// llamaBlock initializes the weights that write to the residual stream smaller, by √(2·layers), so
// that its variance does not grow with depth.
func (s Settings) llamaBlock(prefix string) []Param {
	residualStd := s.InitStd / math.Sqrt(2*float64(s.Layers))
	return []Param{
		normParam(prefix+"attn_norm", s.Width),
		s.qkvParam(prefix),
		matrixParam(prefix+"attn.out", residualStd, s.Width, s.QueryWidth()),
		normParam(prefix+"mlp_norm", s.Width),
		matrixParam(prefix+"mlp.w1", s.InitStd, s.Hidden, s.Width),
		matrixParam(prefix+"mlp.w2", s.InitStd, s.Hidden, s.Width),
		matrixParam(prefix+"mlp.down", residualStd, s.Width, s.Hidden),
	}
}

// olmo2Cut truncates the initial weights, in standard deviations.
const olmo2Cut = 3

func truncated(p Param) Param {
	p.InitCut = olmo2Cut
	return p
}

// Tied reports whether the embedding is the output head.
func (s Settings) Tied() bool { return s.Head == "tied" }

// QueryWidth returns the number of features of all query heads, which is also that of attention's
// output.
func (s Settings) QueryWidth() int { return s.Heads * s.HeadSize }

// KeyWidth returns the number of features of all key heads, and of all value heads.
func (s Settings) KeyWidth() int { return s.KVHeads * s.HeadSize }

// qkvParam returns the fused weight of queries, keys and values. In grouped-query attention, keys
// and values have fewer rows.
func (s Settings) qkvParam(prefix string) Param {
	p := matrixParam(prefix+"attn.qkv", s.InitStd, s.QueryWidth()+2*s.KeyWidth(), s.Width)
	p.Parts = []Part{{"q", s.QueryWidth()}, {"k", s.KeyWidth()}, {"v", s.KeyWidth()}}
	return p
}

func matrixParam(name string, std float64, out, in int) Param {
	return Param{Name: name, Dims: []int{out, in}, Role: RoleMatrix, Quantized: true, Decay: true, InitStd: std}
}

func normParam(name string, width int) Param {
	return Param{Name: name, Dims: []int{width}, Role: RoleNorm, InitMean: 1}
}

// Singles rounds numbers to float32.
func Singles(values []float64) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}

// A Role is the function of a parameter in its model.
type Role string

// The roles of parameters.
const (
	RoleMatrix    Role = "matrix"    // weight of a linear layer inside a block
	RoleEmbedding Role = "embedding" // one row per token id; if the head is tied, it is the output projection, too
	RoleHead      Role = "head"      // output projection, one row per token id
	RoleNorm      Role = "norm"      // gain of a normalization
)

// A Param describes one parameter of a model.
type Param struct {
	Name      string
	Dims      []int // [out, in] for a matrix
	Role      Role
	Parts     []Part    // the matrices stacked in a fused weight, from top to bottom; nil: it is a single matrix
	Quantized bool      // whether the model uses its quantized form in products
	Decay     bool      // whether weight decay applies to it
	InitMean  float64   // the initial elements are drawn from N(InitMean, InitStd²)
	InitStd   float64   // 0: all elements are InitMean
	InitCut   float64   // draws farther from the mean than InitCut·InitStd are repeated; 0: no truncation
	Start     []float32 // the initial elements themselves; nil: they are random
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
	name := fnv.New64a()
	name.Write([]byte(p.Name)) // Never fails.
	rng := rand.New(rand.NewPCG(seed, name.Sum64()))
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
	return CountParams(params, func(p Param) bool { return p.Role != RoleEmbedding && p.Role != RoleHead })
}
