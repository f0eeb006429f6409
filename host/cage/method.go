package cage

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Method is a method of quantization-aware training that modifies the update of quantized weights.
// It writes its parts into programs, which run on every device; its state is saved in checkpoints.
// The methods of this package embed [None] and implement only the parts that they need.
type Method interface {
	// Coefficient returns the method's scalar in step t = 1…total, such as λ_t of the correction.
	// Programs read it, and records contain it.
	Coefficient(t, total int) float64
	// Modes lists the modes that the method needs in addition to Idle; Mode returns the mode of a
	// step. Each mode is compiled as a separate update of the weights.
	Modes() []Mode
	Mode(At) Mode
	// FullPrecision reports whether the gradient is computed at x, without any quantization.
	FullPrecision() bool
	// State lists the state tensors of a weight of the given shape, initialized with zeros.
	State(shape []int) []spec.Tensor

	// The methods below, except Reads, are called only for rules whose mode is one of Modes.

	// Reads returns the quantization inputs that the program of a rule needs.
	Reads(Rule) Reads
	// gradient returns the optimizer's gradient, given g, the clipped gradient of the task.
	gradient(s *writer, g program.Value) program.Value
	// residual returns e_t and α·λ_t, whose product is subtracted from y, the weight after decay
	// and optimizer. x is the optimizer's starting point. An invalid e means no correction.
	residual(s *writer, x, y program.Value) (e, αλ program.Value)
	// after maps the resulting weight y to x_{t+1}.
	after(s *writer, y program.Value) program.Value
}

// Forwarder is a method that inspects or replaces the quantizers of weights.
type Forwarder interface {
	// Forward returns the quantizer of a weight for a training run of total steps; evaluation uses
	// the original one. It returns an error if the method cannot train with the quantizer.
	Forward(w *Weight, total int) (spec.Quantizer, error)
	// Softens reports whether training computes with a value other than Q(x). In either case,
	// statistics are computed from x − Q(x).
	Softens() bool
}

// Mode names a variant of the update of weights.
type Mode string

// Idle is the mode in which a method does not change the update.
const Idle Mode = "off"

// At describes one step of a training run.
type At struct {
	Step        int     // t, from 1
	Steps       int     // T
	Coefficient float64 // of the method
}

// Reads describes the quantization inputs of a weight's update.
type Reads struct {
	Quantized   bool // Q(x_t), as computed for the forward pass
	Requantized bool // Q, computed in the update itself
	NextRate    bool // α_{t+1}
}

// None is the method that changes nothing.
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

// Reads returns the zero Reads: there are no quantization inputs.
func (None) Reads(Rule) Reads { return Reads{} }

func (None) gradient(_ *writer, g program.Value) program.Value { return g }

func (None) residual(*writer, program.Value, program.Value) (e, αλ program.Value) { return e, αλ }

func (None) after(_ *writer, y program.Value) program.Value { return y }

// Of returns the method of the first quantized rule that has one, which all share; else None.
func Of(rules []Rule) Method {
	for _, r := range rules {
		if r.Quantizer != nil && r.Method != nil {
			return r.Method
		}
	}
	return None{}
}
