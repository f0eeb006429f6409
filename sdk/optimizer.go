package sdk

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Optimizer writes the update direction for a parameter tensor as two pure
// functions: state in, state out.
//
// A method refuses what it does not support with [Refuse]; any other error counts as a
// mistake in the plugin.
type Optimizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Init builds the initial state for a tensor with the initial value x.
	Init(b *program.Builder, x program.Value, t Tensor) (State, error)
	// Update builds the direction u and the next state. The host applies
	// x ← x − α·u with its learning rate α. u has the shape of the tensor; the
	// next state has the names and shapes of the state.
	Update(b *program.Builder, in UpdateInput, t Tensor) (u program.Value, next State, err error)
}

// Selective is an optimizer that is meant for some tensors only, as Muon is for the
// matrices of hidden layers. The host gives the others to a second optimizer,
// which the table [optimizer.rest] of the configuration names.
type Selective interface {
	// Accepts reports whether the optimizer is meant for tensors like t. It may
	// depend on role and shape.
	Accepts(t Tensor) bool
}

// TensorRole says what part a parameter plays in the model.
type TensorRole string

// The roles of parameter tensors.
const (
	TensorMatrix    TensorRole = "matrix"    // weight of a linear layer inside a block
	TensorVector    TensorRole = "vector"    // norm weight, bias
	TensorEmbedding TensorRole = "embedding" // token embedding
	TensorHead      TensorRole = "head"      // output head
)

// Tensor is a trained parameter of the model.
type Tensor struct {
	Name  string
	Role  TensorRole
	Shape []int
	// Parts lists the matrices that a fused weight holds one below the other, such as
	// those of queries, keys and values, from the top down. Together they have all of its
	// rows. Parts is empty for a weight that is one matrix.
	Parts []Part
	// Values holds the declared parameters of the optimizer, checked and complete.
	Values
}

// Part is one of the matrices that a fused weight holds.
type Part struct {
	Name  string // such as q, k or v
	First int    // its first row
	Rows  int
}

// State is an optimizer's memory for one tensor, or the trained parameters of a
// quantizer's site: float values by name, for example the moments m and v.
type State map[string]program.Value

// UpdateInput is what an update may read.
type UpdateInput struct {
	// X is the parameter before the step. Weight decay has already been applied, unless
	// the run applies it last.
	X program.Value
	// Gradient has the tensor's shape; it is already clipped.
	Gradient program.Value
	// Step is the number t of this update as a scalar float, counted from 1.
	Step program.Value
	// State is what the previous update, or Init, returned.
	State State
	// The inputs below are there for the few algorithms that need them. A program that does not
	// use one does not have it.

	// Rate is the rate α_t of the schedule times the factor of the tensor's group, a scalar float:
	// what the host multiplies u by, unless the optimizer is a [Pacer]. It may be 0.
	Rate program.Value
	// Steps is the number of steps of the whole run, as a scalar float. It grows when a run is
	// extended.
	Steps program.Value
	// Loss is the loss of this step, as a scalar float: what training minimizes, as a mean over
	// the step's micro-batches.
	Loss program.Value
	// Noise is a key for [program.Builder.RandomBits], a uint[2]: another one for each tensor and
	// in each step, and the same in all methods of one step.
	Noise program.Value
	// Global has the sums of what a [Collector] collects, by name; nil in Collect.
	Global State
	// Probed and Probing are for the Update of a [Prober] or a [Sampler]. Where a probe is due, Probing is 1,
	// and Probed is the second gradient, of the tensor's shape: that of a Prober at the offset point, scaled by
	// the factor of the clipping of Gradient, or that of a Sampler. In other updates Probing, a scalar float,
	// is 0, and Probed is Gradient.
	Probed, Probing program.Value
}

// Pacer is an optimizer with a rate of its own, such as Adafactor, whose rate follows the size
// of the weights. The host uses it wherever it would use the schedule's: for the direction, for
// the weight decay and for the correction by CAGE.
type Pacer interface {
	// Rate builds the rate α of this update, a scalar float, at least 0: the host applies
	// x ← x − α·u. in.X is the parameter before weight decay, and in.State the state before
	// Observe; what Observe or Refresh changes cannot be read. in.Rate is the schedule's rate.
	// α should be 0 where it is 0, so that warmup, the end of a schedule and the groups of a
	// configuration have their effect.
	Rate(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
}

// Collector is an optimizer that needs to know something of all its tensors together, such as the
// norm of the whole gradient or of the way that all of them have come (Prodigy, D-Adaptation).
type Collector interface {
	// Collect builds scalar floats of one tensor, by name. The host adds up those of each name over
	// all tensors that the optimizer has by the same table of the configuration. The other
	// programs of the same step find the sums in in.Global. As in Rate, in.X is the parameter
	// before weight decay, and in.State the state before Observe.
	Collect(b *program.Builder, in UpdateInput, t Tensor) (State, error)
}

// Prober is an optimizer that takes a second gradient, at another point and with the same batch, as
// sharpness-aware minimization does (SAM), or for the product of the Hessian and a vector, as a
// difference of two gradients (Sophia-H, AdaHessian).
type Prober interface {
	// Probe builds the offset p of one tensor from x, where the gradient was taken. If a probe is due, the
	// host takes the gradient at x + p, with all tensors moved at once, before Update. The model at that
	// point is quantized as it is at x, with the same noise; it is then forgotten. As in Collect, in.X is
	// the parameter before weight decay, and in.State the state before Observe.
	Probe(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
	// ProbeAt says at which updates of the tensor a probe is due.
	ProbeAt(t Tensor) Due
}

// Sampler is an optimizer that takes a second gradient at x and with the same batch, but with labels that the
// host draws from the predictions of the model, as Sophia-G does. There is one second gradient: for a tensor for which
// this one is ever due, an offset of a [Prober] must never be.
type Sampler interface {
	// SampleAt says at which updates of the tensor such a gradient is due. Update has it as in.Probed, times √n, where
	// n is the number of labels, and not clipped: so the mean of its square is the diagonal of the Gauss-Newton
	// matrix of the loss (Liu et al. 2023, arXiv 2305.14342, §2.3). Where labels have weights, n is (Σw)²/Σw². The model is
	// quantized as for Gradient, with the same noise. With a teacher, too, labels are drawn from the student.
	SampleAt(t Tensor) Due
}

// Averaged is an optimizer whose result is another point than the one at which it takes
// gradients, such as an average of the path (schedule-free methods, EMA, SWA).
type Averaged interface {
	// Evaluate builds the tensor to evaluate the model with, and to export, from x, where
	// training is, and the state after an update. Before the first update it must be x.
	Evaluate(b *program.Builder, x program.Value, state State, t Tensor) (program.Value, error)
}

// Compact is an optimizer that keeps parts of its state in fewer bits than float32, as 8-bit Adam
// does. Its programs still take and return floats.
type Compact interface {
	// Storage says how state tensors of t are kept between programs, by name. Those that it does
	// not name are kept as float32. An optimizer with refreshes keeps all of its state so.
	Storage(t Tensor) map[string]Storage
}

// Storage is the type in which a state tensor is kept between programs.
type Storage = spec.Storage

// How state is kept: as integers from -128 to 127, integers from 0 to 255, or rounded to the nearest
// number of bfloat16.
const (
	StoreFloat32  = spec.StoreFloat32
	StoreInt8     = spec.StoreInt8
	StoreUint8    = spec.StoreUint8
	StoreBFloat16 = spec.StoreBFloat16
)

// Rounded is an optimizer after whose updates the tensor itself has numbers of fewer bits, as in training in pure
// bfloat16.
type Rounded interface {
	// RoundTo says what x consists of after an update of t: with [StoreBFloat16] the host rounds it to one of the two nearest
	// numbers of bfloat16, at random and so that the mean is what it rounds: x − α·u after weight decay and correction
	// by CAGE. What is less than half of the distance of two numbers is then not lost in every update. [StoreFloat32] leaves x as
	// it is; there are no others. Trained parameters of quantizers that have a constraint are not rounded.
	RoundTo(t Tensor) Storage
}

// Refresher is an optimizer with preconditioners: parts of its state that need
// factorizations, which are too costly for every update. The host runs a refresh program
// every few updates, and only there are factorizations and sorting possible
// (program.OpQR, OpEighValues, OpEighVectors, OpSortColumns).
//
// Update t of a tensor runs Observe; then Refresh, if one is due at t; then Update. Each
// sees the state as the one before it left it.
type Refresher interface {
	// Observe builds the statistics of this update's gradient that a refresh reads. It
	// returns only the state tensors that it changes, which may be none. It is part of
	// every update, even if no refresh is ever due.
	Observe(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	// Refresh builds the renewed state tensors and returns only those, at least one.
	// The program of the first refresh may differ from that of the others; first
	// says whether it is the one that is asked for.
	Refresh(b *program.Builder, in RefreshInput, first bool, t Tensor) (State, error)
	// RefreshAt says at which updates of the tensor a refresh is due.
	RefreshAt(t Tensor) Due
}

// RefreshInput is what a refresh may read.
type RefreshInput struct {
	// Step is the number t of the update that follows, a scalar float.
	Step program.Value
	// State is the state after Observe.
	State State
}

// Due says at which updates t = 1, 2, … something happens: at First, then at those of Next,
// Next + Every, Next + 2·Every, … that come after First. If First is 0, it never happens,
// and Next and Every must be 0; if Every is 0, it happens only once, and Next must be 0.
type Due = spec.Due
