package cage

import (
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Names of the inputs and outputs of an update program, beside those of the
// optimizer's state (sdk.StatePrefix). All but x, gradient and quantized are
// scalars.
const (
	InputX         = "x"         // the parameter x_t, float of the tensor's shape
	InputGradient  = "gradient"  // g_t at x_t, before clipping
	InputQuantized = "quantized" // Q(x_t), as the forward pass used it
	InputClip      = "clip"      // factor of the gradient: min(1, c/‖g‖)
	InputRate      = "rate"      // α_t
	InputNextRate  = "next_rate" // α_{t+1}, for the official variant
	InputKeep      = "keep"      // 1 − α_t·ω, what decoupled weight decay leaves of x
	InputLambda    = "lambda"    // λ_t
	InputStep      = "step"      // t, from 1

	OutputX          = "x"           // x_{t+1}
	OutputErrorNorm2 = "error_norm2" // Σ e², scalar, with Statistics
	OutputValueNorm2 = "value_norm2" // Σ x², scalar, with Statistics
)

// Rule describes the update of one parameter tensor.
type Rule struct {
	Name  string
	Shape []int
	// Optimizer gives the direction u.
	Optimizer sdk.OptimizerProgram
	// Quantizer is the tensor's own forward weight quantizer; nil for a tensor
	// that is not quantized, which is never corrected.
	Quantizer *sdk.QuantizerProgram
	// Clip and Decay say whether the inputs clip and keep exist. A tensor
	// without weight decay saves a pass over memory.
	Clip, Decay bool
	// Form and Variant of the correction; Off while λ_t = 0, which makes a run
	// with λ = 0 the same program, and so the same bits, as one without CAGE.
	Form    Form
	Variant Variant
	// Statistics adds the outputs error_norm2 and value_norm2, taken at x_t.
	Statistics bool
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
// The correction is never clipped and, decoupled, never enters the state. A
// tensor whose residual is not finite gets no correction.
func (r Rule) Program() (*program.Program, error) {
	b := program.NewBuilder("update/" + r.Name)
	in := r.inputs(b)
	g := in[InputGradient]
	if r.Clip {
		g = g.Mul(in[InputClip])
	}
	if r.Form == Coupled && r.Quantizer != nil {
		g = g.Add(finiteOrZero(in[InputX].Sub(in[InputQuantized])).Mul(in[InputLambda]))
	}
	x := in[InputX]
	if r.Decay {
		x = x.Mul(in[InputKeep])
	}
	out := b.Inline(r.Optimizer.Update, r.optimizerInputs(in, x, g)...)
	y := x.Sub(out[sdk.OutputDirection].Mul(in[InputRate]))
	if r.Form == Decoupled && r.Quantizer != nil {
		y = r.correct(b, in, x, y)
	}
	b.Output(OutputX, y)
	for _, s := range r.Optimizer.State {
		b.Output(sdk.StatePrefix+s.Name, out[sdk.StatePrefix+s.Name])
	}
	if r.Statistics {
		b.Output(OutputErrorNorm2, sumOfSquares(in[InputX].Sub(in[InputQuantized])))
		b.Output(OutputValueNorm2, sumOfSquares(in[InputX]))
	}
	p, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", r.Name, err)
	}
	return p, nil
}

// correct applies the decoupled correction to y, the point after the optimizer.
// decayed is x̄.
func (r Rule) correct(b *program.Builder, in map[string]program.Value, decayed, y program.Value) program.Value {
	switch {
	case r.Variant == Official:
		e := y.Sub(b.Inline(r.Quantizer.Program, y)[sdk.OutputValue])
		return y.Sub(finiteOrZero(e).Mul(in[InputNextRate].Mul(in[InputLambda])))
	case !r.Decay:
		e := in[InputX].Sub(in[InputQuantized])
		return y.Sub(finiteOrZero(e).Mul(in[InputRate].Mul(in[InputLambda])))
	case r.Quantizer.Homogeneous:
		// Q(c·x) = c·Q(x), so the residual at the decayed point is the one of the
		// forward pass times c: no second quantization is needed.
		e := in[InputX].Sub(in[InputQuantized])
		return y.Sub(finiteOrZero(e).Mul(in[InputRate].Mul(in[InputLambda]).Mul(in[InputKeep])))
	default:
		e := decayed.Sub(b.Inline(r.Quantizer.Program, decayed)[sdk.OutputValue])
		return y.Sub(finiteOrZero(e).Mul(in[InputRate].Mul(in[InputLambda])))
	}
}

// NeedsQuantized reports whether the program has the input quantized.
func (r Rule) NeedsQuantized() bool {
	if r.Quantizer == nil {
		return false
	}
	decoupled := r.Form == Decoupled && r.Variant == Paper && (!r.Decay || r.Quantizer.Homogeneous)
	return r.Statistics || r.Form == Coupled || decoupled
}

// Inputs lists the inputs of the program in order.
func (r Rule) Inputs() []program.Input {
	tensor, scalar := program.FloatType(r.Shape...), program.FloatType()
	list := []program.Input{{Name: InputX, Type: tensor}, {Name: InputGradient, Type: tensor}}
	if r.NeedsQuantized() {
		list = append(list, program.Input{Name: InputQuantized, Type: tensor})
	}
	for _, s := range r.Optimizer.State {
		list = append(list, program.Input{Name: sdk.StatePrefix + s.Name, Type: program.FloatType(s.Shape...)})
	}
	for _, name := range Scalars {
		list = append(list, program.Input{Name: name, Type: scalar})
	}
	return list
}

// Scalars are the scalar inputs that every update program has, used or not.
var Scalars = []string{InputStep, InputRate, InputNextRate, InputKeep, InputClip, InputLambda}

func (r Rule) inputs(b *program.Builder) map[string]program.Value {
	in := map[string]program.Value{}
	for _, i := range r.Inputs() {
		in[i.Name] = b.Input(i.Name, i.Type)
	}
	return in
}

// optimizerInputs orders the arguments as the optimizer's program declares them.
func (r Rule) optimizerInputs(in map[string]program.Value, x, g program.Value) []program.Value {
	args := []program.Value{x, g, in[InputStep]}
	for _, s := range r.Optimizer.State {
		args = append(args, in[sdk.StatePrefix+s.Name])
	}
	return args
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

// finiteOrZero is e, or zeros where any element of the tensor is not finite.
func finiteOrZero(e program.Value) program.Value {
	if !e.Valid() {
		return e
	}
	return e.Square().SumAll().IsFinite().Select(e, e.Builder().Const(0))
}
