// Package lora describes low-rank adapters of weights (Hu et al., 2022, "LoRA"). A weight W₀ stays
// as it is, and two small factors are trained:
//
//	W = W₀ + s·B·A,  s = α/r.
//
// W is computed before its quantizer, so that training sees Q(W), which is also what an export
// writes. The gradient of a function f of W is s·Bᵀ·∇f for A and s·∇f·Aᵀ for B. With f = ½‖e‖² and
// Q(W) constant, ∇f is the quantization error e = W − Q(W), so that the same products give the
// errors of the factors, along which the CAGE correction steps.
package lora

import (
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

// Settings is the table [adapters] of a configuration.
type Settings struct {
	Rank    int      // r, of each weight; 0: there are no adapters
	Alpha   float64  // α
	Base    string   // type in which frozen weights are stored: Float32 or BFloat16
	Init    string   // directory of PEFT's files with the initial factors; "": they are drawn
	Targets []string // names of weights without the prefix of their block
}

// Types of frozen weights.
const (
	Float32  = "float32"
	BFloat16 = "bfloat16"
)

// MaxRank is the largest rank.
const MaxRank = 4096

// Targets are the weights that can have adapters: the matrices of each block.
var Targets = []string{"attn.qkv", "attn.out", "mlp.w1", "mlp.w2", "mlp.down"}

// Keys returns the keys of the table [adapters].
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "rank", To: &s.Rank, Is: schema.From(1, MaxRank), Optional: "required in the table",
			Doc: "r; queries, keys and values, which are one weight, have factors of this rank each"},
		{Name: "alpha", To: &s.Alpha, Is: schema.Above(0, 1e6),
			Derive: func() any { return 2 * float64(s.Rank) }, Derived: "2 · rank",
			Doc: "α: the product of the factors is multiplied by alpha/rank"},
		{Name: "base", To: &s.Base, Is: schema.OneOf(Float32, BFloat16), Default: Float32,
			Doc: "type in which the frozen weights are stored; bfloat16 halves their memory, and is exact " +
				"for weights that were published in it"},
		{Name: "init", To: &s.Init, Is: schema.Anything("that names a directory, or empty"), Default: "",
			Doc: "directory of initial factors in the files of PEFT, of the same rank and alpha; empty: A " +
				"is drawn, B is 0"},
		{Name: "targets", To: &s.Targets, Is: schema.OneOf(Targets...), Default: Targets,
			Doc: "weights of each block that have adapters"},
	}
}

// Adapter describes the factors of one weight [out, in].
type Adapter struct {
	Weight string
	// Parts are the matrices of a fused weight. Each has factors of its own, as in models where it
	// is a weight of its own.
	Parts []architecture.Part
	In    int
	Rank  int
	Scale float64 // s
}

// Factor is a trained factor of an adapter, by its name and shape.
type Factor struct {
	Name string
	Dims []int
}

// Of lists the adapters of a model with the given parameters, in their order.
func (s Settings) Of(params []architecture.Param) (list []Adapter) {
	for _, p := range params {
		_, name, _ := strings.Cut(strings.TrimPrefix(p.Name, "layers."), ".")
		if p.Role != architecture.RoleMatrix || !slices.Contains(s.Targets, name) || s.Rank == 0 {
			continue
		}
		parts := p.Parts
		if len(parts) == 0 {
			parts = []architecture.Part{{Rows: p.Dims[0]}}
		}
		list = append(list, Adapter{Weight: p.Name, Parts: parts, In: p.Dims[1], Rank: s.Rank,
			Scale: s.Alpha / float64(s.Rank)})
	}
	return list
}

// Endings of the names of factors.
const (
	suffixA = ".lora_A"
	suffixB = ".lora_B"
)

// IsFactor reports whether a name is that of a factor.
func IsFactor(name string) bool {
	return strings.HasSuffix(name, suffixA) || strings.HasSuffix(name, suffixB)
}

// A returns the factor A, [parts·rank, in]: the factors of the parts one below the other.
func (a Adapter) A() Factor {
	return Factor{a.Weight + suffixA, []int{len(a.Parts) * a.Rank, a.In}}
}

// Size returns the number of elements of both factors.
func (a Adapter) Size() int {
	A, B := a.A().Dims, a.B().Dims
	return A[0]*A[1] + B[0]*B[1]
}

// B returns the factor B, [out, rank]. Its rows are those of the weight.
func (a Adapter) B() Factor {
	out := 0
	for _, p := range a.Parts {
		out += p.Rows
	}
	return Factor{a.Weight + suffixB, []int{out, a.Rank}}
}

// Draw sets values to the initial elements of a factor: those of A are uniform in ±1/√in, as PEFT
// draws them, and those of B are 0, so that W starts as W₀. They depend only on the seed and the
// name.
func (f Factor) Draw(seed uint64, values []float32) {
	clear(values)
	if strings.HasSuffix(f.Name, suffixA) {
		bound, rng := 1/math.Sqrt(float64(f.Dims[1])), architecture.Random(seed, f.Name)
		for i := range values {
			values[i] = float32(bound * (2*rng.Float64() - 1))
		}
	}
}
