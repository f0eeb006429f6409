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
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/schema"
)

// Settings is the table [adapters] of a configuration.
type Settings struct {
	Rank    int      // r, of each weight; 0: there are no adapters
	Alpha   float64  // α
	RSLoRA  bool     // s is α/√r (Kalajdzievski, 2023)
	Ranks   []string // r of some modules: entries of a [pattern]
	Alphas  []string // α of some modules
	Base    string   // type in which frozen weights are stored: Float32, BFloat16 or Codes
	Init    string   // directory of PEFT's files with the initial factors; "": they are drawn
	Targets []string // names of weights without the prefix of their block
}

// Types of frozen weights.
const (
	Float32  = "float32"
	BFloat16 = "bfloat16"
	Codes    = "codes"
)

// Limits of ranks and of α.
const (
	MaxRank  = 4096
	maxAlpha = 1e6
)

// Targets are the weights that can have adapters: the matrices of each block.
var Targets = []string{"attn.qkv", "attn.out", "mlp.w1", "mlp.w2", "mlp.down"}

// Keys returns the keys of the table [adapters].
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "rank", To: &s.Rank, Is: schema.From(1, MaxRank), Optional: "required in the table",
			Doc: "r; queries, keys and values, which are one weight, have factors of this rank each"},
		{Name: "alpha", To: &s.Alpha, Is: schema.Above(0, maxAlpha),
			Derive: func() any { return 2 * float64(s.Rank) }, Derived: "2 · rank",
			Doc: "α: the product of the factors is multiplied by alpha/rank"},
		{Name: "rslora", To: &s.RSLoRA, Default: false,
			Doc: "multiply by alpha/√rank instead, as PEFT does with use_rslora"},
		{Name: ranksKey, To: &s.Ranks, Is: schema.Patterns(), Optional: "none",
			Doc: "other ranks of some modules, as in PEFT's rank_pattern: each is \"PATTERN=RANK\", and " +
				"the first whose regular expression matches the end of a module's path there counts: " +
				"\"q_proj=4\""},
		{Name: alphasKey, To: &s.Alphas, Is: schema.Patterns(), Optional: "none",
			Doc: "other values of alpha, likewise"},
		{Name: "base", To: &s.Base, Is: schema.OneOf(Float32, BFloat16, Codes), Default: Float32,
			Doc: "type in which the frozen weights are stored; bfloat16 halves their memory, and is exact " +
				"for weights that were published in it; codes: quantized weights as the codes and scales of " +
				"their quantizer, on whose grid they must be already, the others in float32"},
		{Name: "init", To: &s.Init, Is: schema.Anything("that names a directory, or empty"), Default: "",
			Doc: "directory of initial factors in the files of PEFT, of the same rank and alpha; empty: A " +
				"is drawn, B is 0"},
		{Name: "targets", To: &s.Targets, Is: schema.OneOf(Targets...), Default: Targets,
			Doc: "weights of each block that have adapters"},
	}
}

// Names of keys whose values are patterns, as PEFT calls them, too.
const (
	ranksKey  = "rank_pattern"
	alphasKey = "alpha_pattern"
)

// Adapter describes the factors of one weight [out, in].
type Adapter struct {
	Weight string
	// Parts are the matrices of a fused weight, one below the other. Each has factors of its own, as
	// in models where it is a weight of its own.
	Parts []Part
	In    int
}

// Part is a matrix in a weight, which PEFT calls a module.
type Part struct {
	Module string  // its path in models of transformers
	Rows   []int   // the rows of the weight, in the order of the module
	Rank   int     // r
	Scale  float64 // s
}

// Factor is a trained factor of an adapter, by its name and shape.
type Factor struct {
	Name string
	Dims []int
}

// A pattern has numbers for some modules: the first whose expression matches the module counts.
type pattern []struct {
	expression *regexp.Regexp
	number     float64
}

// parse reads entries of the form PATTERN=NUMBER. As in PEFT, the expression matches the end of a
// module's path, from its beginning or a dot on.
func parse(entries []string) (p pattern, err error) {
	p = make(pattern, len(entries))
	for i, entry := range entries {
		expression, number, _ := strings.CutLast(entry, "=")
		if p[i].number, err = strconv.ParseFloat(number, 64); err != nil {
			return nil, fmt.Errorf("%.80q has no number", entry)
		}
		p[i].expression, err = regexp.Compile(`^(.*\.)?(` + expression + `)$`)
		if expression == "" || err != nil {
			return nil, fmt.Errorf("%.80q has no regular expression that can be read", entry)
		}
	}
	return p, nil
}

func (p pattern) of(module string, otherwise float64) float64 {
	for _, e := range p {
		if e.expression.MatchString(module) {
			return e.number
		}
	}
	return otherwise
}

// Check reports the first fault in the patterns, for a model with the given settings.
func (s Settings) Check(model architecture.Settings) (problems schema.Problems) {
	list := s.Of(model)
	for _, of := range []struct {
		key     string
		entries []string
		most    float64
		whole   bool
	}{{ranksKey, s.Ranks, MaxRank, true}, {alphasKey, s.Alphas, maxAlpha, false}} {
		p, err := parse(of.entries)
		for i, e := range p {
			matches := func(part Part) bool { return e.expression.MatchString(part.Module) }
			switch {
			case !(e.number > 0 && e.number <= of.most), of.whole && e.number != math.Trunc(e.number):
				err = fmt.Errorf("%.80q has a number that is out of range", of.entries[i])
			case !slices.ContainsFunc(list, func(a Adapter) bool {
				return slices.ContainsFunc(a.Parts, matches)
			}):
				err = fmt.Errorf("%.80q matches no module with an adapter", of.entries[i])
			}
		}
		if err != nil {
			problems.Unless(false, schema.Problem{Key: "adapters." + of.key, Found: err.Error(),
				Hint: fmt.Sprintf(`want "PATTERN=NUMBER", a regular expression for the end of a path such `+
					`as model.layers.0.self_attn.q_proj, and a number up to %g`, of.most)})
		}
	}
	return problems
}

// ofModule returns a function that returns r and s of a module.
func (s Settings) ofModule() (func(path string) (rank int, scale float64), error) {
	ranks, err := parse(s.Ranks)
	alphas, err2 := parse(s.Alphas)
	return func(path string) (int, float64) {
		rank := ranks.of(path, float64(s.Rank))
		divisor := rank
		if s.RSLoRA {
			divisor = math.Sqrt(rank)
		}
		return int(rank), alphas.of(path, s.Alpha) / divisor
	}, errors.Join(err, err2)
}

// Of lists the adapters of a model, in the order of its parameters.
func (s Settings) Of(model architecture.Settings) (list []Adapter) {
	if s.Rank == 0 {
		return nil
	}
	of, _ := s.ofModule()                  // Check has reported errors
	layout, _ := huggingface.Layout(model) // every language model has one
	for _, t := range layout {
		_, name, _ := strings.Cut(strings.TrimPrefix(t.Param.Name, "layers."), ".")
		if t.Param.Role != architecture.RoleMatrix || !slices.Contains(s.Targets, name) {
			continue
		}
		if n := len(list); n == 0 || list[n-1].Weight != t.Param.Name {
			list = append(list, Adapter{Weight: t.Param.Name, In: t.Param.Dims[1]})
		}
		p := Part{Module: strings.TrimSuffix(t.Tensor, ".weight"), Rows: t.Rows}
		p.Rank, p.Scale = of(p.Module)
		last := &list[len(list)-1]
		last.Parts = append(last.Parts, p)
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

// A returns the factor A, [sum of ranks, in]: the factors of the parts one below the other.
func (a Adapter) A() Factor {
	ranks := 0
	for _, p := range a.Parts {
		ranks += p.Rank
	}
	return Factor{a.Weight + suffixA, []int{ranks, a.In}}
}

// Size returns the number of elements of both factors.
func (a Adapter) Size() (size int) {
	for _, p := range a.Parts {
		size += p.Rank * (len(p.Rows) + a.In)
	}
	return size
}

// B returns the factor B, [out, largest rank]. Its rows are those of the weight; a part of a lower
// rank does not use its last columns.
func (a Adapter) B() Factor {
	out, rank := 0, 0
	for _, p := range a.Parts {
		out, rank = out+len(p.Rows), max(rank, p.Rank)
	}
	return Factor{a.Weight + suffixB, []int{out, rank}}
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
