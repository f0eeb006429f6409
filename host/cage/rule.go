package cage

import (
	"slices"

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
	// Clip says whether the gradient is multiplied by the input clip. Without it, a pass
	// over memory is saved.
	Clip bool
	// Decay is the weight decay ω, 0 for none.
	Decay float64
	// DecayLast lets the weights decay after the optimizer's update, as the official SOAP
	// does, and not before it. The residual of the paper's variant is then that of x_t.
	DecayLast bool
	// RateFactor multiplies the schedule's rate for this tensor: 1 where nothing else is
	// asked for, 0 for one that stays as it is.
	RateFactor float64
	// Form and Variant of the correction. Form is Off while λ_t = 0, so that a run with
	// λ = 0 has the same program, and ends with the same bits, as one without CAGE.
	Form    Form
	Variant Variant
	// Statistics adds the outputs error_norm2 and value_norm2, taken at x_t.
	Statistics bool
	// Lotion regularizes a quantized tensor by LOTION, the method that CAGE is
	// compared with; nil for none.
	Lotion *Lotion
	// Observed leaves out the optimizer's observation, in a step in which ObserveProgram
	// and a refresh ran before the update.
	Observed bool
}

// corrects reports whether the program has a correction.
func (r Rule) corrects() bool {
	return r.Quantizer != nil && (r.Form == Coupled || r.Form == Decoupled)
}

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
