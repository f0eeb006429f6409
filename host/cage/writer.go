package cage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// A writer writes the program of a rule.
type writer struct {
	rule  Rule
	b     *program.Builder
	in    map[string]program.Value
	state map[string]program.Value // current values
	x     program.Value            // x_t, the input
	α, λ  program.Value            // α_t of this tensor, and λ_t; see setRate
	rate  program.Value            // the schedule's α_t of this tensor
	e     program.Value            // see forwardError
	task  program.Value            // the loss's part of the optimizer's gradient
	// finite is true if the residual that the method uses is finite.
	finite program.Value
	// counts holds the values of the method's counters, by name.
	counts map[string]program.Value
}

func (r Rule) begin(prefix string, inputs []program.Input) *writer {
	s := &writer{rule: r, b: program.NewBuilder(prefix + r.Name), in: map[string]program.Value{},
		state: map[string]program.Value{}, counts: map[string]program.Value{}}
	for _, i := range inputs {
		s.in[i.Name] = s.b.Input(i.Name, i.Type)
	}
	for _, t := range r.computed() {
		s.state[t.Name] = s.in[spec.StatePrefix+t.Name]
	}
	s.x, s.rate, s.λ = s.in[spec.InputX], s.scaledRate(s.in[spec.InputRate]), s.in[InputLambda]
	return s
}

func (s *writer) build() (*program.Program, error) {
	p, err := s.b.Build()
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", s.rule.Name, err)
	}
	return p, nil
}

// setRate sets α_t: the schedule's, or the optimizer's own, which it computes from x_t and the
// gradient before weight decay.
func (s *writer) setRate(g program.Value) {
	s.α = s.rate
	if p := s.rule.Optimizer.Rate; p != nil {
		s.α = s.optimize(p, s.x, g)[spec.OutputRate]
	}
}

func (s *writer) scaledRate(rate program.Value) program.Value {
	if f := s.rule.RateFactor; f != 1 {
		return rate.Scale(f)
	}
	return rate
}

// gradient returns the optimizer's gradient: the clipped gradient of the task, plus the method's
// term, which is not clipped.
func (s *writer) gradient() program.Value {
	g := s.in[spec.InputGradient]
	if s.rule.Clip {
		g = g.Mul(s.in[InputClip])
	}
	s.task = g
	return s.rule.active().gradient(s, g)
}

// direction inlines the optimizer's programs and returns u. An opaque optimizer has no programs:
// its u is an input.
func (s *writer) direction(x, g program.Value) program.Value {
	if s.rule.Optimizer.Opaque {
		return s.in[spec.OutputDirection]
	}
	if o := s.rule.Optimizer.Observe; o != nil && !s.rule.Observed {
		s.optimize(o, x, g)
	}
	return s.optimize(s.rule.Optimizer.Update, x, g)[spec.OutputDirection]
}

func (s *writer) optimize(p *program.Program, x, g program.Value) map[string]program.Value {
	args := make([]program.Value, len(p.Inputs))
	for i, in := range p.Inputs {
		state, isState := strings.CutPrefix(in.Name, spec.StatePrefix)
		sum, isSum := strings.CutPrefix(in.Name, spec.GlobalPrefix)
		switch {
		case isState:
			args[i] = s.state[state]
		case isSum:
			args[i] = s.in[s.rule.global(sum)]
		case in.Name == spec.InputX:
			args[i] = x
		case in.Name == spec.InputGradient:
			args[i] = g
		case in.Name == spec.InputRate:
			args[i] = s.rate
		case in.Name == spec.InputNoise:
			args[i] = s.in[InputOptimizerNoise]
		case in.Name == spec.InputProbed:
			args[i] = s.probed(g)
		case in.Name == spec.InputProbing && s.rule.Probing:
			args[i] = s.b.Const(1)
		case in.Name == spec.InputProbing:
			args[i] = s.b.Const(0)
		default:
			args[i] = s.in[in.Name]
		}
	}
	out := transform.Inline(s.b, p, args...)
	for name, v := range out {
		if t, ok := strings.CutPrefix(name, spec.StatePrefix); ok {
			s.state[t] = v
		}
	}
	return out
}

// probed returns the second gradient for the optimizer. A gradient at a point other than x is
// clipped by the same factor as the gradient g at x, and the method adds the same term to it.
func (s *writer) probed(g program.Value) program.Value {
	if !s.rule.Probing {
		return g
	}
	p := s.in[spec.InputProbed]
	if s.rule.Optimizer.Sampled {
		return p.Mul(s.in[InputSampledFactor])
	}
	if s.rule.Clip {
		p = p.Mul(s.in[InputClip])
	}
	if s.task != g {
		p = p.Add(g.Sub(s.task))
	}
	return p
}

func (r Rule) decaysFirst() bool { return r.Decay > 0 && !r.DecayLast }

func (s *writer) decayFirst(x program.Value) program.Value {
	if s.rule.decaysFirst() {
		return x.Mul(s.decayFactor())
	}
	return x
}

func (s *writer) decayLast(y program.Value) program.Value {
	if s.rule.Decay > 0 && s.rule.DecayLast {
		return y.Mul(s.decayFactor())
	}
	return y
}

func (s *writer) decayFactor() program.Value {
	return s.b.Const(1).Sub(s.α.Scale(s.rule.Decay))
}

// quantize returns Q(x) for any x, with the current trained parameters and the noise of the
// forward pass.
func (s *writer) quantize(x program.Value) program.Value {
	args := lists.Map(s.rule.Quantizer.Program.Inputs, func(in program.Input) program.Value {
		if in.Name == spec.InputX {
			return x
		}
		return s.in[in.Name]
	})
	return transform.Inline(s.b, s.rule.Quantizer.Program, args...)[spec.OutputValue]
}

// rotated returns H·x, where H is the rotation of this block size: x itself if that is 0 or 1. H is
// its own inverse, so that the input "quantized", H·Q(x_t), gives Q(x_t).
func rotated(x program.Value, block int) program.Value {
	if block > 1 {
		return x.Hadamard(block)
	}
	return x
}

func (s *writer) forwardError() program.Value {
	if s.rule.Factor {
		return s.in[InputError]
	}
	if !s.e.Valid() {
		s.e = s.x.Sub(rotated(s.in[InputQuantized], s.rule.Rotation))
	}
	return s.e
}

// finiteForwardError returns e, or zeros if any element of e is not finite. The check reads the
// quantized value before it is rotated back, and so needs no rotation of its own: the sums of a
// rotation are finite if their terms are.
func (s *writer) finiteForwardError() program.Value {
	if s.rule.Rotation <= 1 {
		return s.ifFinite(s.forwardError())
	}
	return s.zeroUnlessFinite(s.x.Sub(s.in[InputQuantized]), s.forwardError())
}

func (s *writer) ifFinite(e program.Value) program.Value { return s.zeroUnlessFinite(e, e) }

// zeroUnlessFinite returns e, or zeros if any element of x is not finite. In the latter case the
// tensor is trained without a correction in this step and counted as uncorrected.
func (s *writer) zeroUnlessFinite(x, e program.Value) program.Value {
	s.finite = x.Square().SumAll().IsFinite()
	return s.finite.Select(e, s.b.Const(0))
}

// roundingKey separates the bits for rounding from those that the optimizer draws with its key.
const roundingKey = 0x9e3779b9

// finish applies the constraint of a quantizer's trained parameter, and the rounding of
// sdk.Rounded, after the update.
func (s *writer) finish(x program.Value) program.Value {
	if p := s.rule.Constrain; p != nil {
		x = transform.Inline(s.b, p, x)[p.Outputs[0].Name]
	}
	if s.rule.rounds() {
		key := s.in[InputOptimizerNoise].Xor(s.b.ConstUint(roundingKey))
		x = x.StochasticBFloat16(s.b.RandomBits(key, s.rule.Shape...))
	}
	return x
}

// statistics returns the program that measures a tensor without an update.
func (r Rule) statistics() (*program.Program, error) {
	s := r.begin("statistics/", []program.Input{floatInput(spec.InputX, r.Shape...),
		floatInput(InputQuantized, r.Shape...)})
	s.measure()
	return s.build()
}

func (s *writer) measure() {
	if s.rule.Statistics {
		var e program.Value
		if s.rule.softened() { // the forward pass uses another value than Q(x)
			e = s.x.Sub(s.quantize(s.x))
		} else {
			e = s.forwardError()
		}
		s.b.Output(OutputErrorNorm2, sumOfSquares(e))
		s.b.Output(OutputValueNorm2, sumOfSquares(s.x))
	}
	if s.finite.Valid() {
		s.b.Output(OutputUncorrected, s.finite.Not().Convert(program.Float))
	}
	if s.rule.Optimizer.Rate != nil {
		s.b.Output(spec.OutputRate, s.α)
	}
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		s.b.Output(CountPrefix+name, s.counts[name])
	}
}

// ErrorOf returns the program of e = x − Q(x), the output "error", from x and quantized (rotated as
// in the rule).
func ErrorOf(r Rule) (*program.Program, error) {
	b := program.NewBuilder("error/" + r.Name)
	t := program.FloatType(r.Shape...)
	x, q := b.Input(spec.InputX, t), b.Input(InputQuantized, t)
	b.Output(InputError, x.Sub(rotated(q, r.Rotation)))
	return b.Build()
}

// ParetoNorm2 returns a program for the squared norm of one tensor's part of the stationarity
// measure (paper Eq. 2)
//
//	P_λ(x) = ∇f(x) + λ·(x − Q(x)).
//
// Its inputs are gradient, x, quantized (rotated as in the rule) and lambda; its output is the
// scalar norm2. The norm over all tensors is the square root of the sum. With ∇f from a
// full-precision forward pass it is the quantity of the theorem. With the gradient of the quantized
// forward pass, ∇f(Q(x)), it is a different quantity and must be named accordingly.
func ParetoNorm2(r Rule) (*program.Program, error) {
	b := program.NewBuilder("pareto/" + r.Name)
	t := program.FloatType(r.Shape...)
	g := b.Input(spec.InputGradient, t)
	x := b.Input(spec.InputX, t)
	q := b.Input(InputQuantized, t)
	lambda := b.Input(InputLambda, program.FloatType())
	b.Output(OutputNorm2, sumOfSquares(g.Add(x.Sub(rotated(q, r.Rotation)).Mul(lambda))))
	return b.Build()
}

func sumOfSquares(v program.Value) program.Value { return sum(v.Square()) }

// sum adds up each row first: a single float32 sum over millions of terms would lose small terms.
func sum(v program.Value) program.Value {
	if rank := v.Type().Rank(); rank > 1 {
		v = v.ReduceSum(rank - 1)
	}
	return v.SumAll()
}

// output declares what the update returns: the parameter, the states and the measures.
func (s *writer) output(x program.Value) {
	s.average(x)
	s.b.Output(spec.InputX, x)
	for _, t := range s.rule.computed() {
		s.b.Output(spec.StatePrefix+t.Name, s.state[t.Name])
	}
	s.measure()
}
