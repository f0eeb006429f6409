package cage

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// PARQ quantizes gradually: the model computes with a proximal map of the latent weights x, which
// lies between x and Q(x) and hardens until it equals Q(x) ("PARQ: Piecewise-Affine Regularized
// Quantization", Jin et al. 2025, arXiv 2503.15748; BinaryRelax: Yin et al. 2018, arXiv
// 1801.06313). Between two adjacent levels l < u of the grid, with midpoint m, the maps are
//
//	parq:          min(max(m + (x − m)/ρ, l), u)      ρ falls from 1 to 0
//	binary_relax:  (1 − θ)·x + θ·Q(x)                 θ grows from 0 to 1
//
// and with f = (k − a)/(b − a), the progress from a = AnnealStart·T to b = AnnealEnd·T,
//
//	ρ = (S(f) − S₁)/(S₀ − S₁)    S(f) = 1/(1 + exp(s·(f − c)))
//	θ = f                        S₀ = 1/(1 + exp(−s/2)), S₁ = 1/(1 + exp(s/2))
//
// with the steepness s and the center c. Before a the weights are unquantized, and from b on they
// are Q(x). This follows pytorch/ao at 36027d82, torchao/prototype/parq/optim (parq.py,
// binarelax.py, quantopt.py): there the map follows the update number k = 0, 1 …, so that the
// weights of step t use k = t − 2. Gradients pass to x by the surrogate of the quantizer (straight
// through), and the optimizer updates x. Evaluation uses Q(x).
//
// The authors recompute the levels every 10 steps (quant_period); here they always follow x.
type PARQ struct {
	None
	Map                    string  // "parq" or "binary_relax"
	AnnealStart, AnnealEnd float64 // fractions of the run, 0 ≤ AnnealStart < AnnealEnd ≤ 1
	Steepness              float64 // s > 0
	Center                 float64 // c
}

// DefaultPARQ holds the authors' steepness and center. They leave the annealing period to the user;
// here the default is the whole run.
var DefaultPARQ = PARQ{Map: "parq", AnnealEnd: 1, Steepness: 10, Center: 0.5}

func (m *PARQ) keys() []schema.Key {
	of, d := []string{NamePARQ}, DefaultPARQ
	return []schema.Key{
		{Name: "map", To: &m.Map, Is: schema.OneOf("parq", "binary_relax"), For: of, Default: d.Map,
			Doc: "map from x to values between x and Q(x): piecewise linear with a growing slope (parq), " +
				"or a weighted mean of both (binary_relax)"},
		{Name: "anneal_start", To: &m.AnnealStart, Is: schema.Below(0, 1), For: of,
			Default: d.AnnealStart,
			Doc:     "fraction of the run before the annealing starts"},
		{Name: "anneal_end", To: &m.AnnealEnd, Is: schema.Between(0, 1), For: of, Default: d.AnnealEnd,
			Doc: "fraction of the run at which the annealing ends, with quantized weights"},
		{Name: "steepness", To: &m.Steepness, Is: schema.Between(1e-3, 100), For: of,
			Default: d.Steepness,
			Doc:     "steepness of the sigmoid schedule of the inverse slope; almost linear below 1"},
		{Name: "center", To: &m.Center, Is: schema.Between(-1, 2), For: of, Default: d.Center,
			Doc: "progress of the annealing at the center of that sigmoid"},
	}
}

// Coefficient returns the degree of quantization: 1 − ρ, or θ.
func (m PARQ) Coefficient(t, total int) float64 {
	a, b := m.AnnealStart*float64(total), m.AnnealEnd*float64(total)
	k := float64(t - 2)
	switch {
	case k < a:
		return 0
	case k >= b:
		return 1
	case m.Map == "binary_relax":
		return (k - a) / (b - a)
	}
	s := func(f float64) float64 { return 1 / (1 + math.Exp(m.Steepness*f)) }
	return 1 - max(smallest, (s((k-a)/(b-a)-m.Center)-s(0.5))/(s(-0.5)-s(0.5)))
}

// Softens returns true: the model computes with the map.
func (PARQ) Softens() bool { return true }

// Forward returns a quantizer that computes the map in training and Q(x) in evaluation.
func (m PARQ) Forward(w *Weight, total int) (spec.Quantizer, error) {
	q := w.Quantizer
	if q.Draws() {
		return q, errors.New("its quantizer is stochastic, and the map needs a deterministic Q(x)")
	}
	if len(q.Trained)+len(q.State) > 0 || q.Backward != nil {
		return q, errors.New("its quantizer has trained parameters, state or a backward pass of its " +
			"own, which the map does not support")
	}
	b := program.NewBuilder("parq/" + q.Program.Name)
	x := b.Input(spec.InputX, q.Program.Inputs[0].Type)
	step := b.Input(spec.InputStep, program.FloatType())
	args := lists.Map(q.Program.Inputs, func(in program.Input) program.Value {
		switch in.Name {
		case spec.InputX:
			return x
		case spec.InputStep:
			return step
		}
		return b.Input(in.Name, in.Type)
	})
	out := transform.Inline(b, q.Program, args...)
	hard, k := out[spec.OutputValue], step.Shift(-2)
	start, end := b.Const(m.AnnealStart*float64(total)), b.Const(m.AnnealEnd*float64(total))
	f := k.Sub(start).Div(end.Sub(start))
	soft := x.Add(f.Mul(hard.Sub(x)))
	if m.Map == "parq" {
		l, err := w.levels()
		if err != nil {
			return q, fmt.Errorf("the map parq needs the levels of the grid, but %w: "+
				`want map = "binary_relax", or another quantizer`, err)
		}
		one := b.Const(1)
		sigmoid := func(f program.Value) program.Value {
			return one.Div(one.Add(f.Scale(m.Steepness).Exp()))
		}
		s0, s1 := 1/(1+math.Exp(-m.Steepness/2)), 1/(1+math.Exp(m.Steepness/2))
		ρ := sigmoid(f.Shift(-m.Center)).Shift(-s1).Scale(1 / (s0 - s1)).Max(b.Const(smallest))
		scale := w.scale(b, l, out)
		r := rotated(x, w.Rotation).Div(scale) // a final rotation is applied after rounding to the grid
		lower, upper := adjacentLevels(b, l, r)
		middle := lower.Add(upper).Scale(0.5)
		y := middle.Add(r.Sub(middle).Div(ρ)).Max(lower).Min(upper).Mul(scale)
		soft = rotated(scale.Ne(b.Const(0)).Select(y, b.Const(0)), w.Rotation)
	}
	value := k.Lt(start).Select(x, k.Ge(end).Select(hard, soft))
	b.Output(spec.OutputValue, value)
	b.Output(spec.OutputSurrogate, out[spec.OutputSurrogate])
	if mask, ok := out[spec.OutputMask]; ok {
		b.Output(spec.OutputMask, mask)
	}
	q.Evaluate = cmp.Or(q.Evaluate, q.Program)
	q.Unpack = nil // the map returns no codes
	var err error
	q.Program, err = b.Build()
	return q, err
}

// adjacentLevels returns the levels below and above r; outside the grid both are the nearest level.
func adjacentLevels(b *program.Builder, l Levels, r program.Value) (lower, upper program.Value) {
	n := len(l.Numbers)
	if l.Uniform() {
		step := (l.Numbers[n-1] - l.Numbers[0]) / float64(n-1)
		at := r.Shift(-l.Numbers[0]).Scale(1 / step).Neg().Floor().Neg() // the next integer above
		level := func(i program.Value) program.Value {
			return i.Clip(0, float64(n-1)).Scale(step).Shift(l.Numbers[0])
		}
		return level(at.Shift(-1)), level(at)
	}
	lower = b.Const(l.Numbers[0])
	upper = lower
	for i := 1; i < n; i++ {
		d := b.Const(l.Numbers[i] - l.Numbers[i-1])
		lower = lower.Add(r.Gt(b.Const(l.Numbers[i])).Select(d, b.Const(0)))
		upper = upper.Add(r.Gt(b.Const(l.Numbers[i-1])).Select(d, b.Const(0)))
	}
	return lower, upper
}
