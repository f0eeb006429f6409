package model

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// A Role says what a parameter does in its model.
type Role string

// The roles of parameters.
const (
	RoleMatrix    Role = "matrix"    // weight of a linear layer inside a block
	RoleEmbedding Role = "embedding" // one row per token id; with a tied head its output projection too
	RoleHead      Role = "head"      // output projection, one row per token id
	RoleNorm      Role = "norm"      // gain of a normalization
)

// A Param describes one parameter of a model.
type Param struct {
	Name      string
	Dims      []int // [out, in] for a matrix
	Role      Role
	Parts     []Part    // the matrices that a fused weight holds one below the other, from the top down; nil: it is one
	Quantized bool      // whether its model multiplies with it in quantized form
	Decay     bool      // whether weight decay applies to it
	InitMean  float64   // at the start of training its elements are drawn from N(InitMean, InitStd²)
	InitStd   float64   // 0: all elements are InitMean
	InitCut   float64   // draws farther from the mean than InitCut·InitStd are drawn again; 0: none
	Start     []float32 // the elements themselves instead; nil: drawn
}

// A Part is one of the matrices that a fused weight holds.
type Part struct {
	Name string
	Rows int
}

// Size returns the number of elements.
func (p Param) Size() int { return shapes.Make(dtypes.Float32, p.Dims...).Size() }

// Init returns the elements that the parameter starts training with, in row-major order, as [Param.Draw] sets them.
func (p Param) Init(seed uint64) []float32 {
	values := make([]float32, p.Size())
	p.Draw(seed, values)
	return values
}

// Draw sets the elements that the parameter starts training with, in row-major order. They depend on the seed, the
// parameter's name and its size alone, so that parameters can be initialized in any order, and in parallel.
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

// NonEmbedding counts the elements of all parameters but the embedding and the head: the N of scaling laws.
func NonEmbedding(params []Param) int {
	return CountParams(params, func(p Param) bool { return p.Role != RoleEmbedding && p.Role != RoleHead })
}
