package sdk

import "github.com/cage-qat/cage/sdk/program"

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
}

// Names of the inputs and outputs of an optimizer's programs; a state tensor s
// appears as StatePrefix + s.
const (
	InputGradient   = "gradient"
	InputStep       = "step"
	OutputDirection = "direction"
	StatePrefix     = "state."
)
