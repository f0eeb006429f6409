package cage

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Method is a method of quantization-aware training that modifies the update of quantized weights.
// Its parts are written into programs, so that they run on every device, and its state is in
// checkpoints. The methods of this package embed [None], and implement only the parts that they
// need.
type Method interface {
	// Coefficient returns a scalar that the programs of step t = 1…total read and that records have,
	// such as λ_t of the correction.
	Coefficient(t, total int) float64
	// Modes lists the modes that the method needs in addition to Idle; Mode returns the mode of a
	// step. Each mode is compiled as a separate update of the weights.
	Modes() []Mode
	Mode(At) Mode
	// FullPrecision reports whether the gradient is computed at x, without any quantization.
	FullPrecision() bool
	// State lists the state tensors of a weight of the given shape, initialized with zeros.
	State(shape []int) []spec.Tensor

	// The methods below, except Reads, are called only for rules whose mode is one of Modes and not
	// Idle.

	// Reads returns the quantization inputs of a rule's program.
	Reads(Rule) Reads
	// gradient returns the optimizer's gradient, given g, the clipped gradient of the task.
	gradient(s *step, g program.Value) program.Value
	// residual returns e_t and α·λ_t, whose product is subtracted from y, the weight after decay
	// and optimizer. x is the optimizer's starting point. An invalid e means no correction.
	residual(s *step, x, y program.Value) (e, αλ program.Value)
	// after maps the resulting weight y to x_{t+1}.
	after(s *step, y program.Value) program.Value
}

// Forwarder is a method that inspects or replaces the quantizers of weights.
type Forwarder interface {
	// Forward returns the quantizer that computes a weight in a training of total steps; evaluation
	// keeps the original. It is an error if the method cannot train with the quantizer.
	Forward(w *Weight, total int) (spec.Quantizer, error)
	// Softens reports whether training computes with another value than Q(x). Statistics are
	// computed from x − Q(x) in either case.
	Softens() bool
}

// Mode names a variant of the update of weights.
type Mode string

// Idle is the mode in which a method does not change the update.
const Idle Mode = "off"

// At describes a step of a training.
type At struct {
	Step        int     // t, from 1
	Steps       int     // T
	Coefficient float64 // of the method
}

// Reads describes the quantization inputs of a weight's update.
type Reads struct {
	Quantized bool // Q(x_t), as computed for the forward pass
	Again     bool // Q at a point other than x_t
	NextRate  bool // α_{t+1}
}

// None adds nothing to the training.
type None struct{}

// Coefficient returns 0.
func (None) Coefficient(t, total int) float64 { return 0 }

// Modes returns nil: the method has no modes.
func (None) Modes() []Mode { return nil }

// Mode returns Idle.
func (None) Mode(At) Mode { return Idle }

// FullPrecision returns false.
func (None) FullPrecision() bool { return false }

// State returns nil.
func (None) State([]int) []spec.Tensor { return nil }

// Reads returns no inputs.
func (None) Reads(Rule) Reads { return Reads{} }

func (None) gradient(_ *step, g program.Value) program.Value { return g }

func (None) residual(*step, program.Value, program.Value) (e, αλ program.Value) { return e, αλ }

func (None) after(_ *step, y program.Value) program.Value { return y }

// Of returns the method of a training with these rules.
func Of(rules []Rule) Method {
	for _, r := range rules {
		if r.Quantizer != nil && r.Method != nil {
			return r.Method
		}
	}
	return None{}
}
