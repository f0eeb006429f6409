package cage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/lotion"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Names of the inputs and outputs of an update program, beside those of the
// optimizer's state (sdk.StatePrefix) and of the quantizer's trained parameters
// (sdk.TrainedPrefix). All but x, gradient and quantized are scalars.
const (
	InputX         = "x"         // the parameter x_t, float of the tensor's shape
	InputGradient  = "gradient"  // g_t at x_t, before clipping
	InputQuantized = "quantized" // Q(x_t), as the forward pass used it; see Rule.Rotation
	InputClip      = "clip"      // factor of the gradient: min(1, c/‖g‖)
	InputRate      = "rate"      // α_t of the schedule
	InputNextRate  = "next_rate" // α_{t+1}, for the official variant
	InputLambda    = "lambda"    // λ_t
	InputStep      = "step"      // t, from 1

	OutputX          = "x"           // x_{t+1}
	OutputErrorNorm2 = "error_norm2" // Σ e², scalar, with Statistics
	OutputValueNorm2 = "value_norm2" // Σ x², scalar, with Statistics

	// OutputUncorrected is a scalar of every rule with a correction: 1 if the residual is
	// not finite and the tensor gets none, else 0.
	OutputUncorrected = "uncorrected"
)

// Scalars are the scalar inputs that every update program has, used or not.
var Scalars = []string{InputStep, InputRate, InputNextRate, InputClip, InputLambda}

// Measures are the scalar outputs of a rule's program, in order.
func (r Rule) Measures() []string {
	var list []string
	if r.Statistics {
		list = append(list, OutputErrorNorm2, OutputValueNorm2)
	}
	if r.corrects() {
		list = append(list, OutputUncorrected)
	}
	return list
}

// corrects reports whether the program has a correction.
func (r Rule) corrects() bool {
	return r.Quantizer != nil && (r.Form == Coupled || r.Form == Decoupled)
}

// Rule describes the update of one parameter tensor.
type Rule struct {
	Name  string
	Shape []int
	// Optimizer gives the direction u.
	Optimizer sdk.OptimizerProgram
	// Quantizer is the tensor's own forward weight quantizer; nil for a tensor
	// that is not quantized, which is never corrected.
	Quantizer *sdk.QuantizerProgram
	// Rotation is the block of the rotation H that the input quantized has been left
	// in: it is H·Q(x_t), which the program rotates back where it needs Q(x_t). 0 or 1
	// means none. It does not concern the quantizer's program.
	Rotation int
	// Clip says whether the input clip counts; without, a pass over memory is saved.
	Clip bool
	// Decay is the weight decay ω, 0 for none.
	Decay float64
	// DecayLast lets the weights decay after the optimizer's update, as the official SOAP
	// does, and not before it. The residual of the paper's variant is that at x_t then.
	DecayLast bool
	// RateFactor multiplies the schedule's rate for this tensor; 0 means 1.
	RateFactor float64
	// Form and Variant of the correction; Off while λ_t = 0, which makes a run
	// with λ = 0 the same program, and so the same bits, as one without CAGE.
	Form    Form
	Variant Variant
	// Statistics adds the outputs error_norm2 and value_norm2, taken at x_t.
	Statistics bool
	// Lotion regularizes a quantized tensor by LOTION, the method that CAGE is
	// compared with; nil for none.
	Lotion *lotion.Method
	// Observed leaves out the optimizer's observation: its program ran before,
	// and a refresh after it.
	Observed bool
}

// Program writes one step of the tensor, Algorithm 1 generalized to any
// optimizer (Eq. 5):
//
//	g ← clip·g                     (+ λ_t·(x − Q(x)), coupled)
//	x̄ ← (1 − α·ω)·x
//	u, state ← optimizer(x̄, g, state)
//	y ← x̄ − α·u
//	x' ← y − α·λ_t·e               (decoupled)
//
// With DecayLast, x̄ is x and y ← (1 − α·ω)·(x − α·u).
//
// The correction is never clipped and, decoupled, never enters the state. A
// tensor whose residual is not finite gets no correction.
func (r Rule) Program() (*program.Program, error) {
	b := program.NewBuilder("update/" + r.Name)
	u := r.begin(b)
	if r.Optimizer.Observe != nil && !r.Observed {
		u.apply(r.Optimizer.Observe)
	}
	out := u.apply(r.Optimizer.Update)
	y := u.x.Sub(out[sdk.OutputDirection].Mul(u.rate))
	if r.Decay > 0 && r.DecayLast {
		y = y.Mul(u.keep())
	}
	if r.Form == Decoupled && r.Quantizer != nil {
		y = u.correct(y)
	}
	b.Output(OutputX, y)
	for _, s := range r.State() {
		b.Output(sdk.StatePrefix+s.Name, u.state[s.Name])
	}
	if r.Statistics {
		b.Output(OutputErrorNorm2, sumOfSquares(u.error()))
		b.Output(OutputValueNorm2, sumOfSquares(u.in[InputX]))
	}
	if r.corrects() {
		b.Output(OutputUncorrected, u.finite.Not().Convert(program.Float))
	}
	return r.build(b)
}

// ObserveProgram writes the optimizer's observation alone, for a step in which a
// refresh follows it: from the inputs of the rule to the state tensors that it
// changes. It is nil when the optimizer has none.
func (r Rule) ObserveProgram() (*program.Program, error) {
	if r.Optimizer.Observe == nil {
		return nil, nil
	}
	b := program.NewBuilder("observe/" + r.Name)
	u := r.begin(b)
	u.apply(r.Optimizer.Observe)
	for _, o := range r.Optimizer.Observe.Outputs {
		b.Output(o.Name, u.state[strings.TrimPrefix(o.Name, sdk.StatePrefix)])
	}
	return r.build(b)
}

func (r Rule) build(b *program.Builder) (*program.Program, error) {
	p, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", r.Name, err)
	}
	return p, nil
}

// writing is an update program under construction.
type writing struct {
	rule Rule
	b    *program.Builder
	in   map[string]program.Value
	x, g program.Value // x̄ and the gradient that the optimizer sees
	rate program.Value // α_t of this tensor
	e    program.Value // the error of the forward pass, once it is written
	// finite is whether the residual of the correction is.
	finite program.Value
	state  map[string]program.Value
}

// begin writes what comes before the optimizer.
func (r Rule) begin(b *program.Builder) *writing {
	u := &writing{rule: r, b: b, in: map[string]program.Value{}, state: map[string]program.Value{}}
	for _, i := range r.Inputs() {
		u.in[i.Name] = b.Input(i.Name, i.Type)
	}
	for _, s := range r.State() {
		u.state[s.Name] = u.in[sdk.StatePrefix+s.Name]
	}
	u.rate = u.scaled(u.in[InputRate])
	u.g = u.in[InputGradient]
	if r.Clip {
		u.g = u.g.Mul(u.in[InputClip])
	}
	if r.Form == Coupled && r.Quantizer != nil {
		u.g = u.g.Add(u.finiteError().Mul(u.in[InputLambda]))
	}
	if r.regularized() {
		terms := r.Lotion.Regularize(b, u.in[InputX], u.g, u.state[fisherState])
		u.g, u.state[fisherState] = terms.Gradient, terms.Fisher
	}
	u.x = u.in[InputX]
	if r.decaysFirst() {
		u.x = u.x.Mul(u.keep())
	}
	return u
}

// scaled is a rate of the schedule times the tensor's factor.
func (u *writing) scaled(rate program.Value) program.Value {
	if f := u.rule.RateFactor; f != 0 && f != 1 {
		return rate.Scale(f)
	}
	return rate
}

// keep is 1 − α·ω, what weight decay leaves of x.
func (u *writing) keep() program.Value {
	return u.b.Const(1).Sub(u.rate.Scale(u.rule.Decay))
}

// error is e = x_t − Q(x_t) of the forward pass.
func (u *writing) error() program.Value {
	if !u.e.Valid() {
		u.e = u.in[InputX].Sub(u.rule.restore(u.in[InputQuantized]))
	}
	return u.e
}

// finiteError is e, or zeros where any element of it is not finite. That is seen in the
// quantized value as it is: the sums of a rotation are finite where its terms are, and
// the check, which has to come before all elements, need not rotate.
func (u *writing) finiteError() program.Value {
	if u.rule.Rotation <= 1 {
		return u.finiteOrZero(u.error())
	}
	return u.zeroUnlessFinite(u.in[InputX].Sub(u.in[InputQuantized]), u.error())
}

// restore is Q(x) from the input quantized.
func (r Rule) restore(quantized program.Value) program.Value {
	if r.Rotation > 1 {
		return quantized.Hadamard(r.Rotation)
	}
	return quantized
}

// apply inlines one of the optimizer's programs and takes over the state that it
// returns.
func (u *writing) apply(p *program.Program) map[string]program.Value {
	args := []program.Value{u.x, u.g, u.in[InputStep]}
	for _, s := range u.rule.Optimizer.State {
		args = append(args, u.state[s.Name])
	}
	out := u.b.Inline(p, args...)
	for name, v := range out {
		if s, ok := strings.CutPrefix(name, sdk.StatePrefix); ok {
			u.state[s] = v
		}
	}
	return out
}

// correct applies the decoupled correction to y, the point after the optimizer.
func (u *writing) correct(y program.Value) program.Value {
	strength := u.rate.Mul(u.in[InputLambda])
	switch {
	case u.rule.Variant == Official:
		strength = u.scaled(u.in[InputNextRate]).Mul(u.in[InputLambda])
		return y.Sub(u.finiteOrZero(y.Sub(u.quantize(y))).Mul(strength))
	case !u.rule.decaysFirst():
		return y.Sub(u.finiteError().Mul(strength))
	case u.rule.Quantizer.Homogeneous:
		// Q(c·x) = c·Q(x), so the residual at the decayed point is the one of the
		// forward pass times c: no second quantization is needed.
		return y.Sub(u.finiteError().Mul(strength.Mul(u.keep())))
	default:
		return y.Sub(u.finiteOrZero(u.x.Sub(u.quantize(u.x))).Mul(strength))
	}
}

// quantize is Q at another point than x_t, with the trained parameters as they are.
func (u *writing) quantize(x program.Value) program.Value {
	args := []program.Value{x}
	for _, t := range u.rule.Quantizer.Trained {
		args = append(args, u.in[sdk.TrainedPrefix+t.Name])
	}
	return u.b.Inline(u.rule.Quantizer.Program, args...)[sdk.OutputValue]
}

// quantizesAgain reports whether the program quantizes another point than x_t.
func (r Rule) quantizesAgain() bool {
	return r.Quantizer != nil && r.Form == Decoupled &&
		(r.Variant == Official || r.decaysFirst() && !r.Quantizer.Homogeneous)
}

// decaysFirst reports whether the optimizer gets a decayed x.
func (r Rule) decaysFirst() bool { return r.Decay > 0 && !r.DecayLast }

// fisherState is the state tensor of LOTION's Fisher average, beside those of the
// optimizer.
const fisherState = "lotion.fisher"

func (r Rule) regularized() bool { return r.Lotion != nil && r.Quantizer != nil }

// State lists the state tensors of the rule: the optimizer's, then those of the
// method, which start at zero.
func (r Rule) State() []sdk.StateTensor {
	if !r.regularized() {
		return r.Optimizer.State
	}
	return append(slices.Clone(r.Optimizer.State), sdk.StateTensor{Name: fisherState, Shape: r.Shape})
}

// NeedsQuantized reports whether the program has the input quantized.
func (r Rule) NeedsQuantized() bool {
	if r.Quantizer == nil {
		return false
	}
	return r.Statistics || r.Form == Coupled || r.Form == Decoupled && !r.quantizesAgain()
}

// Inputs lists the inputs of the program in order.
func (r Rule) Inputs() []program.Input {
	tensor, scalar := program.FloatType(r.Shape...), program.FloatType()
	list := []program.Input{{Name: InputX, Type: tensor}, {Name: InputGradient, Type: tensor}}
	if r.NeedsQuantized() {
		list = append(list, program.Input{Name: InputQuantized, Type: tensor})
	}
	if r.quantizesAgain() {
		for _, t := range r.Quantizer.Trained {
			list = append(list, program.Input{Name: sdk.TrainedPrefix + t.Name, Type: program.FloatType(t.Shape...)})
		}
	}
	for _, s := range r.State() {
		list = append(list, program.Input{Name: sdk.StatePrefix + s.Name, Type: program.FloatType(s.Shape...)})
	}
	for _, name := range Scalars {
		list = append(list, program.Input{Name: name, Type: scalar})
	}
	return list
}

// finiteOrZero is e, or zeros where any element of the tensor is not finite.
func (u *writing) finiteOrZero(e program.Value) program.Value { return u.zeroUnlessFinite(e, e) }

// zeroUnlessFinite is e, or zeros where any element of x is not finite.
func (u *writing) zeroUnlessFinite(x, e program.Value) program.Value {
	u.finite = x.Square().SumAll().IsFinite()
	return u.finite.Select(e, u.b.Const(0))
}

// sumOfSquares adds up rows first: in float32 one running sum over millions of squares
// loses what is small beside it.
func sumOfSquares(v program.Value) program.Value {
	v = v.Square()
	if rank := len(v.Shape()); rank > 1 {
		v = v.Sum(rank - 1)
	}
	return v.SumAll()
}
