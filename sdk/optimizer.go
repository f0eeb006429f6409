package sdk

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Optimizer writes the update direction for a parameter tensor as two pure functions: state in,
// state out. A method refuses unsupported settings or tensors with [Refuse]; any other error counts
// as a mistake in the plugin.
type Optimizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Init builds the initial state for a tensor with the initial value x.
	Init(b *program.Builder, x program.Value, t Tensor) (State, error)
	// Update builds the direction u and the next state. The host applies x ← x − α·u with its learning
	// rate α. u has the shape of the tensor; the next state has the names and shapes of the state.
	Update(b *program.Builder, in UpdateInput, t Tensor) (u program.Value, next State, err error)
}

// Selective is an optimizer for some tensors only, as Muon is for the matrices of hidden layers.
// The optimizer of the table [optimizer.rest] of the configuration updates the other tensors.
type Selective interface {
	// Accepts reports whether the optimizer updates t, which may depend on t's role and shape.
	Accepts(t Tensor) bool
}

// TensorRole is the role of a parameter in the model.
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
	// Parts lists the matrices that a fused weight stacks along its rows, such as those of
	// queries, keys and values, in order; together they cover all rows. It is empty for a weight
	// that is a single matrix.
	Parts []Part
	// Values holds the declared parameters of the optimizer, checked and complete.
	Values
}

// Part is one of the matrices of a fused weight.
type Part struct {
	Name  string // such as q, k or v
	First int    // its first row
	Rows  int
}

// State is an optimizer's memory for one tensor, or the trained parameters of a
// quantizer's site: float values by name, for example the moments m and v.
type State map[string]program.Value

// UpdateInput holds the inputs of an update.
type UpdateInput struct {
	// X is the parameter before the step. Weight decay has already been applied, unless
	// the run applies it last.
	X program.Value
	// Gradient has the tensor's shape; it is already clipped.
	Gradient program.Value
	// Step is the number t of this update as a scalar float, counted from 1.
	Step program.Value
	// State is the state that the previous update, or Init, returned.
	State State
	// Few algorithms need the inputs below. A program has only those that it uses.

	// Rate is the learning rate α_t of the schedule times the factor of the tensor's group, a scalar
	// float: the host multiplies u by it, unless the optimizer is a [Pacer]. It may be 0.
	Rate program.Value
	// Steps is the number of steps of the whole run, as a scalar float. It grows when a run is
	// extended.
	Steps program.Value
	// Loss is the training loss of this step, as a scalar float: the mean over the step's
	// micro-batches.
	Loss program.Value
	// Noise is a key for [program.Builder.RandomBits], a uint[2]: different for each tensor and
	// step, and the same in all methods of one step.
	Noise program.Value
	// Global holds the sums of the values that a [Collector] collects, by name; nil in Collect.
	Global State
	// Probed and Probing are for the Update of a [Prober] or a [Sampler]. If a probe or sample is
	// due, the scalar float Probing is 1, and Probed is the second gradient, in the tensor's shape:
	// for a Prober, the gradient at the offset point, times the clipping factor of Gradient. In all
	// other updates Probing is 0, and Probed is Gradient.
	Probed, Probing program.Value
}

// Compact is an optimizer that keeps parts of its state in fewer bits than float32, as 8-bit Adam
// does. Its programs still take and return floats.
type Compact interface {
	// Storage returns the storage types of state tensors of t, by name. Tensors that it does not
	// name are stored as float32. An optimizer with refreshes must store all its state as float32.
	Storage(t Tensor) map[string]Storage
}

// BiasCorrection returns 1 − βᵗ for step t: the divisor of a moving average with decay rate β that
// started at zero. It returns 1 for β = 0 and for β = 1 (a sum). It is computed as −expm1(t·log β),
// because βᵗ in binary32 would lose the digits of 1 − βᵗ for β near 1 and small t.
func BiasCorrection(step program.Value, beta float64) program.Value {
	if beta == 0 || beta == 1 {
		return step.Builder().Const(1)
	}
	return step.Scale(math.Log(beta)).Expm1().Neg()
}

// Storage is the type in which a state tensor is stored between programs.
type Storage = spec.Storage

// The storage types: StoreInt8 holds integers from -128 to 127, StoreUint8 integers from 0 to 255;
// StoreBFloat16 rounds to the nearest bfloat16.
const (
	StoreFloat32  = spec.StoreFloat32
	StoreInt8     = spec.StoreInt8
	StoreUint8    = spec.StoreUint8
	StoreBFloat16 = spec.StoreBFloat16
)

// Refresher is an optimizer with preconditioners: parts of its state that need factorizations,
// which are too costly for every update. The host runs a refresh program every few updates; only
// there are factorizations and sorting possible (program.OpQR, OpEighValues, OpEighVectors,
// OpSortColumns).
//
// Update t of a tensor runs Observe; then Refresh, if one is due at t; then Update. Each reads the
// state that the preceding one wrote.
type Refresher interface {
	// Observe builds the statistics of this update's gradient that a refresh reads. It returns only
	// the state tensors that it changes, possibly none, and runs even if no refresh is ever due.
	Observe(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	// Refresh builds the renewed state tensors and returns only those, at least one. It is called
	// once for the program of the first refresh (first is true) and once for that of later ones.
	Refresh(b *program.Builder, in RefreshInput, first bool, t Tensor) (State, error)
	// RefreshAt returns the updates of the tensor at which a refresh is due.
	RefreshAt(t Tensor) Due
}

// RefreshInput holds the inputs of a refresh.
type RefreshInput struct {
	// Step is the number t of the update that follows, a scalar float.
	Step program.Value
	// State is the state after Observe.
	State State
	// Gradient is the gradient of that update, as in UpdateInput. A program has it only if it uses
	// it.
	Gradient program.Value
}

// Due is a schedule of updates; see [spec.Due].
type Due = spec.Due
