package cage

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Method is what a training does about the quantization of its weights, beside quantizing them. Its
// parts are written into programs, so that they run on every device, and what it keeps for a weight
// is in checkpoints. All of it is for quantized weights only. The methods of this package embed
// [None], and have only the parts that they need.
type Method interface {
	// Strength is a number that the programs of step t = 1…total read and that records of a run
	// have: λ_t of the correction.
	Strength(t, total int) float64
	// Modes lists the modes that the method needs beside Idle, and Mode is the one of a step. Each
	// is compiled as another update of the weights.
	Modes() []Mode
	Mode(At) Mode
	// FullPrecision reports whether the gradient is taken at x, without any quantization.
	FullPrecision() bool
	// State lists what the method keeps for a weight of the given shape. It begins with zeros.
	State(shape []int) []spec.Tensor

	// The other parts are for rules in one of the Modes.

	// Reads says what the program of a rule reads.
	Reads(Rule) Reads
	// gradient is what the optimizer gets instead of g, the gradient of the task after clipping.
	gradient(s *step, g program.Value) program.Value
	// residual is e_t and α·λ_t, whose product is subtracted from y, the weight after decay and
	// optimizer. x is the point that the optimizer started from. An e that is not valid means none.
	residual(s *step, x, y program.Value) (e, αλ program.Value)
	// after takes the weight y after all this to x_{t+1}.
	after(s *step, y program.Value) program.Value
}

// Forwarder is a method that looks at the quantizers of weights.
type Forwarder interface {
	// Forward returns the quantizer with which a training of that many steps computes a weight;
	// that of evaluations stays. It is an error if the method cannot train with the quantizer.
	Forward(w *Weight, total int) (spec.Quantizer, error)
	// Softens reports whether training computes with another value than Q(x). Statistics are of x −
	// Q(x) all the same.
	Softens() bool
}

// Mode names a form of the update of weights.
type Mode string

// Idle is the mode in which a method adds nothing to the update.
const Idle Mode = "off"

// At is a moment of a training.
type At struct {
	Step     int     // t, from 1
	Steps    int     // T
	Strength float64 // that of the method
}

// Reads says what the update of a weight reads of its quantization.
type Reads struct {
	Quantized bool // Q(x_t), as the forward pass has it
	Again     bool // Q at another point than x_t
	NextRate  bool // α_{t+1}
}

// None is the method that adds nothing.
type None struct{}

// Strength is 0.
func (None) Strength(t, total int) float64 { return 0 }

// Modes are none.
func (None) Modes() []Mode { return nil }

// Mode is Idle.
func (None) Mode(At) Mode { return Idle }

// FullPrecision is false.
func (None) FullPrecision() bool { return false }

// State is nothing.
func (None) State([]int) []spec.Tensor { return nil }

// Reads is nothing.
func (None) Reads(Rule) Reads { return Reads{} }

func (None) gradient(_ *step, g program.Value) program.Value { return g }

func (None) residual(*step, program.Value, program.Value) (e, αλ program.Value) { return e, αλ }

func (None) after(_ *step, y program.Value) program.Value { return y }

// Of is the method of a training with these rules.
func Of(rules []Rule) Method {
	for _, r := range rules {
		if r.Quantizer != nil && r.Method != nil {
			return r.Method
		}
	}
	return None{}
}
