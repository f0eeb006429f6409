package architecture

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// A Role says what a parameter does in its model.
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
	Parts     []Part    // the matrices that a fused weight holds, stacked from top to bottom; nil: it is a single matrix
	Quantized bool      // whether the model uses it in products in quantized form
	Decay     bool      // whether weight decay applies to it
	InitMean  float64   // the initial elements are drawn from N(InitMean, InitStd²)
	InitStd   float64   // 0: all elements are InitMean
	InitCut   float64   // draws farther from the mean than InitCut·InitStd are repeated; 0: none are
	Start     []float32 // the initial elements themselves; nil: they are drawn
}

// A Part is one of the matrices that a fused weight holds.
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

// Init returns the initial elements of the parameter, in row-major order, as [Param.Draw] sets them.
func (p Param) Init(seed uint64) []float32 {
	values := make([]float32, p.Size())
	p.Draw(seed, values)
	return values
}

// Draw sets values to the initial elements of the parameter, in row-major order. They depend only on the seed and on
// the parameter's name and size, so that parameters can be initialized in any order, and in parallel.
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

// CountParams adds up the sizes of the parameters that keep returns true for; nil keeps all.
func CountParams(params []Param, keep func(Param) bool) int {
	total := 0
	for _, p := range params {
		if keep == nil || keep(p) {
			total += p.Size()
		}
	}
	return total
}

// NonEmbedding counts the elements of all parameters except the embedding and the head: the N of scaling laws.
func NonEmbedding(params []Param) int {
	return CountParams(params, func(p Param) bool { return p.Role != RoleEmbedding && p.Role != RoleHead })
}
