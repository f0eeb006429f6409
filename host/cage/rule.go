package cage

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Inputs and outputs of an update program, in addition to those of the optimizer and the quantizer
// (package spec): x (the parameter x_t; x_{t+1} as output), gradient (g_t at x_t, before
// clipping), rate (α_t of the schedule), step (t, from 1), state, and the inputs of the optimizer's
// and quantizer's programs. All inputs below but quantized and error are scalars or keys.
const (
	InputQuantized      = "quantized" // Q(x_t), as used in the forward pass; see Rule.Rotation
	InputError          = "error"     // e of a factor; see Rule.Factor
	InputClip           = "clip"      // factor on the gradient: min(1, c/‖g‖)
	InputNextRate       = "next_rate" // α_{t+1}, for the official variant
	InputLambda         = "lambda"    // λ_t, the coefficient of the method
	InputOptimizerNoise = "optimizer_noise"
	InputSampledFactor  = "sampled_factor" // on a gradient with labels drawn from the model

	OutputErrorNorm2  = "error_norm2" // Σ e², with Statistics
	OutputValueNorm2  = "value_norm2" // Σ x², with Statistics
	OutputUncorrected = "uncorrected" // 1 if the tensor is not corrected: e is not finite
	CountPrefix       = "count."      // prefix of the names of a method's counters

	OutputNorm2 = "norm2" // of [ParetoNorm2]
	OutputPoint = "point" // of the part [Probing]

	// Outputs of the part [FeedingOpaque], the inputs of an opaque optimizer, and of [Observing], the
	// gradient for refreshes.
	OutputOpaqueX       = "given_x"
	OutputGivenGradient = "given_gradient"
)

// Scalars lists the scalar inputs that every update program has, used or not. The number of steps
// and the loss follow if the optimizer reads them.
var Scalars = []string{spec.InputStep, spec.InputRate, InputNextRate, InputClip, InputLambda}

// Rule describes the update of one parameter tensor.
type Rule struct {
	Name  string
	Shape []int
	// Optimizer computes the direction u.
	Optimizer spec.Optimizer
	// Group identifies the tensors over which the optimizer sums its collected values.
	Group string
	// Quantizer is the quantizer of the tensor as a weight; nil for a tensor that is not quantized,
	// which is never corrected. If the update quantizes again, it uses the noise and state of the
	// forward pass.
	Quantizer *spec.Quantizer
	// Frozen is set for a parameter that is not trained, which has no optimizer. Statistics are those
	// of the tensor program.KindMerged: the parameter with its adapter, if it has one.
	Frozen bool
	// Factor is set for a factor of an adapter. It has no quantizer: the method gets the error of the
	// factor (package lora) in the input "error".
	Factor bool
	// Weight describes the quantizer's grid, for a method that is a [Forwarder]; otherwise it may
	// be nil.
	Weight *Weight
	// Rotation is the block size of the rotation H in the input "quantized", which is H·Q(x_t); the
	// program rotates it back where it needs Q(x_t). 0 or 1 means no rotation. Rotation does not
	// affect the quantizer's program.
	Rotation int
	// Clip makes the program multiply the gradient by the input "clip". Without it, the program saves
	// a pass over memory.
	Clip bool
	// Decay is the weight decay ω; 0 means none.
	Decay float64
	// DecayLast applies weight decay after the optimizer's update instead of before it, as the
	// official SOAP does. The paper's variant then uses the residual at x_t.
	DecayLast bool
	// RateFactor multiplies the schedule's rate for this tensor, and is normally 1. 0 freezes the
	// tensor: the update changes neither it nor its state, regardless of optimizer and method.
	RateFactor float64
	// Method modifies the update of a quantized tensor, and Mode is its mode in this step; nil and
	// Idle mean no modification. A rule in the mode Idle has the same program, and computes the
	// same bits, as one without the method.
	Method Method
	Mode   Mode
	// Statistics adds the outputs error_norm2 and value_norm2 of x_t − Q(x_t) and x_t.
	Statistics bool
	// Average is the running mean that evaluation uses. If it is nil, evaluation uses x itself.
	Average *Average
	// Constrain projects a trained parameter of a quantizer onto its feasible set after the update;
	// nil means that it is unconstrained.
	Constrain *program.Program
	// Probing is set in steps in which the optimizer's probe is due.
	Probing bool
	// Observed omits the optimizer's observation, for a step in which the part [Observing] and a
	// refresh have run before the update.
	Observed bool
}

func (r Rule) active() Method {
	if r.Quantizer == nil && !r.Factor || r.Method == nil || r.Mode == Idle || r.Mode == "" {
		return None{}
	}
	return r.Method
}

// State lists the state tensors of the rule: of the optimizer, of the method (initialized with
// zeros), and the average.
func (r Rule) State() []spec.Tensor {
	list := slices.Clone(r.Optimizer.State)
	if r.Quantizer != nil && r.Method != nil {
		list = append(list, r.Method.State(r.Shape)...)
	}
	return append(list, r.average()...)
}

func (r Rule) average() []spec.Tensor {
	if r.Average == nil {
		return nil
	}
	return []spec.Tensor{{Name: AverageState, Shape: r.Shape}}
}

// computed lists the state tensors that programs read and write: the states of an opaque optimizer
// and of an idle method are excluded.
func (r Rule) computed() []spec.Tensor {
	list := append(slices.Clone(r.active().State(r.Shape)), r.average()...)
	if r.Optimizer.Opaque {
		return list
	}
	return slices.Concat(r.Optimizer.State, list)
}

// NeedsQuantized reports whether the program has the input "quantized".
func (r Rule) NeedsQuantized() bool {
	return r.Quantizer != nil && (r.Statistics && !r.softened() || r.active().Reads(r).Quantized)
}

// softened reports whether the forward pass of training uses a value other than Q(x).
func (r Rule) softened() bool {
	f, ok := r.Method.(Forwarder)
	return ok && r.Quantizer != nil && f.Softens()
}

// Quantizes reports whether the program uses the quantization of x_t: its value, or the noise that
// it was computed with.
func (r Rule) Quantizes() bool { return r.NeedsQuantized() || r.quantizesAgain() }

// quantizesAgain reports whether the program itself quantizes a point: one other than x_t, or x_t
// if the forward pass did not compute Q(x_t).
func (r Rule) quantizesAgain() bool {
	return r.active().Reads(r).Requantized || r.Statistics && r.softened()
}

// Inputs lists the inputs of the program in order.
func (r Rule) Inputs() []program.Input {
	list := r.inputs()
	if r.Probing && r.Optimizer.Update.Input(spec.InputProbed) >= 0 {
		list = append(list, floatInput(spec.InputProbed, r.Shape...))
		if r.Optimizer.Sampled {
			list = append(list, floatInput(InputSampledFactor))
		}
	}
	if r.Optimizer.Opaque {
		list = append(list, floatInput(spec.OutputDirection, r.Shape...))
	}
	names, _ := r.Optimizer.Collected()
	for _, name := range names {
		if r.Optimizer.HasInput(spec.GlobalPrefix + name) {
			list = append(list, floatInput(r.global(name)))
		}
	}
	return list
}

func (r Rule) global(name string) string { return spec.GlobalPrefix + r.Group + "." + name }

// NeedsKey reports whether the program has the input optimizer_noise, which the optimizer or the
// rounding of the tensor may need.
func (r Rule) NeedsKey() bool { return r.Optimizer.HasInput(spec.InputNoise) || r.rounds() }

// rounds reports whether the tensor is rounded after the update; constrained tensors are not.
func (r Rule) rounds() bool {
	return r.Optimizer.Rounded == spec.StoreBFloat16 && r.RateFactor != 0 && r.Constrain == nil
}

// inputs lists the inputs that are available before anything is collected, and before an opaque
// optimizer has run.
func (r Rule) inputs() []program.Input {
	list := []program.Input{floatInput(spec.InputX, r.Shape...),
		floatInput(spec.InputGradient, r.Shape...)}
	if r.NeedsQuantized() {
		list = append(list, floatInput(InputQuantized, r.Shape...))
	}
	if r.Factor && r.active() != Method(None{}) {
		list = append(list, floatInput(InputError, r.Shape...))
	}
	if r.quantizesAgain() {
		for _, in := range r.Quantizer.Program.Inputs {
			switch in.Name {
			case spec.InputX, spec.InputStep, spec.InputSteps: // listed here and below
			default:
				list = append(list, in)
			}
		}
	}
	for _, s := range r.computed() {
		list = append(list, floatInput(spec.StatePrefix+s.Name, s.Shape...))
	}
	for _, name := range Scalars {
		list = append(list, floatInput(name))
	}
	for _, name := range []string{spec.InputSteps, spec.InputLoss} {
		if r.Optimizer.HasInput(name) || r.quantizesAgain() && r.Quantizer.Program.Input(name) >= 0 {
			list = append(list, floatInput(name))
		}
	}
	if r.NeedsKey() {
		key := program.Type{DType: program.Uint, Shape: []int{2}}
		list = append(list, program.Input{Name: InputOptimizerNoise, Type: key})
	}
	return list
}

func floatInput(name string, shape ...int) program.Input {
	return program.Input{Name: name, Type: program.FloatType(shape...)}
}
