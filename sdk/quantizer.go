package sdk

import "github.com/cage-qat/cage/sdk/program"

// Quantizer writes the fake quantization Q of a tensor.
type Quantizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Quantize builds Q(x) for one site of the model. x has the site's shape.
	// It is called once for each site and must be pure: for equal sites it writes equal
	// programs. It refuses what it does not support with [Refuse]; any other error counts
	// as a mistake in the plugin.
	Quantize(b *program.Builder, x program.Value, site Site) (Quantized, error)
}

// Trainable is a quantizer with trained parameters of its own, such as a learned step size.
// Their initial values are computed from a sample of the tensor. The optimizer of the run
// trains them, without weight decay; checkpoints save them; CAGE does not correct them.
type Trainable interface {
	// InitTrained builds the initial values of the trained parameters from x: the
	// weight, or the first batch of activations. Quantize then finds them in
	// Site.Trained. The gradient of the surrogate trains them, so Quantize must give
	// one. For a site without trained parameters return none. The shapes must not
	// depend on the number of rows of an activation, because evaluation uses another
	// number.
	InitTrained(b *program.Builder, x program.Value, site Site) (State, error)
}

// Packer is a quantizer whose results can be stored as integer codes and scales.
type Packer interface {
	// Unpack builds Q(x), bit for bit, from the codes and scales that Quantize returns
	// for the site. The Quantize method of a Packer must return both at every site.
	// Nothing else is stored: Site.Trained is empty here, so whatever decoding needs from
	// it belongs in the scale.
	Unpack(b *program.Builder, codes, scale program.Value, site Site) (program.Value, error)
}

// Role says what a quantizer is applied to.
type Role string

// The roles of a site.
const (
	RoleWeight     Role = "weight"
	RoleActivation Role = "activation"
)

// Site is a place in the model where a tensor is quantized.
type Site struct {
	// Role is weight or activation.
	Role Role
	// Name is the name of the weight, or of the product whose input the activation is.
	Name string
	// Shape is the shape of the tensor. The last axis is the one that the matrix product
	// contracts: a row is one output channel of a weight, one token of an activation.
	Shape []int
	// Trained holds the trained parameters of a [Trainable] quantizer in Quantize;
	// elsewhere it is empty.
	Trained State
	// Values holds the declared parameters, checked and complete.
	Values
}

// RowLen is the length of a row: the size of the last axis.
func (s Site) RowLen() int {
	if len(s.Shape) == 0 {
		return 1
	}
	return s.Shape[len(s.Shape)-1]
}

// Quantized is a quantizer's answer.
type Quantized struct {
	// Value is Q(x): on the grid, in the shape of x, and in the original domain, which means that a
	// rotation has been undone. Required.
	Value program.Value
	// Surrogate is what the backward pass differentiates in place of Value. The
	// forward value stays Value bit for bit. If it is absent, x itself takes its place:
	// the plain straight-through estimator.
	Surrogate program.Value
	// Codes, Scale and Mask describe the quantization for export and diagnostics. Each
	// may be absent. Codes are integers, as int or float, in the shape of x; for a
	// quantizer that rotates, they are those of the rotated tensor. Scale has the scale
	// of each group. Mask is a bool in the shape of x, true where the gradient passes.
	Codes, Scale, Mask program.Value
	// Homogeneous promises Q(c·x) = c·Q(x) for every c > 0, up to rounding. It holds if
	// scales are in proportion to the data, without an additive constant; it cannot hold
	// with trained parameters. Given this promise, the host may derive the error at a
	// rescaled point from the error that it already has.
	Homogeneous bool
}

// Names of the inputs and outputs of a quantizer's programs; a trained parameter
// p appears as TrainedPrefix + p.
const (
	InputX          = "x"
	OutputValue     = "value"
	OutputSurrogate = "surrogate"
	OutputCodes     = "codes"
	OutputScale     = "scale"
	OutputMask      = "mask"
	TrainedPrefix   = "trained."
)
