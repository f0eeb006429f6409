package sdk

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer writes the fake quantization Q of a tensor.
type Quantizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Quantize builds Q(x) for one site of the model. x has the site's shape.
	// It is called twice for each site, for the program of training and for that of
	// evaluation ([Site.Training]), and must be pure: for equal sites it writes equal
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
	// number. Site.Activations and Site.Weights are there.
	InitTrained(b *program.Builder, x program.Value, site Site) (State, error)
}

// Stateful is a quantizer that keeps state from step to step, such as a moving average of
// what it has seen. Nothing trains it: the quantizer says in each step what comes next.
// Checkpoints save it, and evaluation reads it as the last step left it.
//
// All of a step reads the state as the step found it. Afterwards the state is what [Quantized.Next]
// says: for a weight, of which there is one; for an activation, the mean of Next over the
// micro-batches and the replicas of the step, so that it does not depend on how a batch is divided,
// and a moving average of means is exact; see [Maximal]. A step that is skipped, because its loss
// is not finite, leaves the state as it is. A run that takes gradients in full precision, and the
// products of the backward pass, refuse quantizers with state.
type Stateful interface {
	// InitState builds the state that training begins with from x: the weight, or the
	// first batch of activations. Quantize then finds it in Site.State. For a site
	// without state return none. The shapes must not depend on the number of rows of an
	// activation, because evaluation uses another number. Site.Activations and Site.Weights
	// are there. What is found once and stays, Next returns as it is.
	InitState(b *program.Builder, x program.Value, site Site) (State, error)
}

// Differentiator is a quantizer with a backward pass of its own, instead of that of a
// surrogate: for gradients that no surrogate has, because they are not linear in dy, as
// where they are scaled by its sign (EWGS).
type Differentiator interface {
	// Backward builds the gradients of the loss with respect to x and to the trained
	// parameters from dy, that with respect to Q(x), in the shape of x. Quantize then gives
	// no surrogate; for a site whose gradients are those of its surrogate, return none. site
	// is as in Quantize in training, with the same noise; Backward may call Quantize to have
	// its values. What both compute is computed once.
	//
	// For a weight, dy is that of the mean loss of the step; for an activation, that of the
	// mean loss of its micro-batch, which is larger in smaller micro-batches. So a gradient
	// should be in proportion to the magnitude of dy, or not depend on dy at all. Evaluation
	// and the products of the backward pass have no use for what Backward builds.
	Backward(b *program.Builder, x, dy program.Value, site Site) (Gradients, error)
}

// Gradients is what the backward pass of a [Differentiator] gives.
type Gradients struct {
	// X is the gradient with respect to x, in the shape of x. Required.
	X program.Value
	// Trained has the gradient of each parameter in Site.Trained, with its name and shape.
	Trained State
}

// Packer is a quantizer whose results can be stored as integer codes and scales.
type Packer interface {
	// Unpack builds Q(x), bit for bit, from the codes and scales that Quantize returns
	// for the site: for evaluation, if it quantizes otherwise than training does. The
	// Quantize method of a Packer must return both at every site.
	// Nothing else is stored: Site.Trained and Site.State are empty here, so whatever
	// decoding needs from them belongs in the scale.
	Unpack(b *program.Builder, codes, scale program.Value, site Site) (program.Value, error)
}

// Role says what a quantizer is applied to.
type Role string

// The roles of a site.
const (
	RoleWeight     Role = "weight"
	RoleActivation Role = "activation"
	// RoleGradient is the gradient of the loss with respect to the output of a linear layer.
	RoleGradient Role = "gradient"
	// RoleKey, RoleValue and RoleQuery are the operands of attention, [tokens, heads·size]:
	// keys and values as a cache holds them, so that keys and queries have been normalized
	// and rotated to their positions. Queries have no factor 1/√size. In each head of keys
	// and queries the first coordinates of all rotated pairs come before the second ones.
	RoleKey   Role = "key"
	RoleValue Role = "value"
	RoleQuery Role = "query"
)

// Product is one of the three matrix products of a linear layer with input x
// [tokens, in], weight W [out, in] and output y = x·Wᵀ [tokens, out]. dy is the gradient
// of the loss with respect to y.
type Product string

// The products. Each sums over the last axis of both operands, as sites have them.
const (
	// ProductForward is y = x·Wᵀ, which sums over the inputs: the sites are x and W.
	ProductForward Product = "forward"
	// ProductInputGradient is dx = dy·W, which sums over the outputs: the sites are dy
	// [tokens, out], with the role gradient, and Wᵀ [in, out], with the role weight.
	ProductInputGradient Product = "input_gradient"
	// ProductWeightGradient is dW = dyᵀ·x, which sums over the tokens: the sites are dyᵀ
	// [out, tokens], with the role gradient, and xᵀ [in, tokens], with the role
	// activation.
	ProductWeightGradient Product = "weight_gradient"
)

// Site is a place in the model where a tensor is quantized.
type Site struct {
	// Role is weight, activation, gradient, key, value or query.
	Role Role
	// Product is the matrix product whose operand the tensor is. In the products of the
	// backward pass only the value of Q(x) is used: the surrogate is not differentiated,
	// and there can be no trained parameters. Empty means forward.
	Product Product
	// Name is the name of the weight, or of the product whose input the activation is. A
	// gradient has the name of the weight of its layer, and the operands of attention are
	// named after their block, as in layers.0.attn.keys.
	Name string
	// Layer is the number of the transformer block that the tensor is in, from 0; -1 if it
	// is in none. Layers is how many blocks the model has, so that the last one has the
	// number Layers - 1; 0 if that is not known.
	Layer, Layers int
	// Shape is the shape of the tensor, with at least one axis. The last axis is the one that the
	// matrix product contracts. In the forward product a row is one output channel of a weight, one
	// token of an activation; in the others the tensor may be transposed: see [Product].
	Shape []int
	// Heads is the number of equal parts of the last axis that belong to one head of
	// attention each, and RowHeads that of the rows; 0 means that the axis is not made of
	// heads. Keys and values have as many as the model has of these, which may be fewer than
	// those of queries. The input and the weight of attention's output projection have those
	// of queries. The rows of the fused projection's weight, attn.qkv, have all three, one
	// after the other.
	Heads, RowHeads int
	// Context is the number of tokens of one sequence where rows are tokens: the first
	// Context rows are its tokens in their order, then those of the next sequence follow. It
	// is 1 where sequences are continued or scored, because then each row may be a token of
	// another sequence, and earlier tokens are not there. It is 0 where rows are no tokens.
	Context int
	// Trained holds the trained parameters of a [Trainable] quantizer in Quantize and
	// Backward; elsewhere it is empty.
	Trained State
	// State is the state of a [Stateful] quantizer, or of a [Searcher], in Quantize and Backward,
	// as the last step left it; elsewhere it is empty.
	State State
	// Training says which program Quantize is to build: the one that trains, or the one
	// with which the model is evaluated, exported and used. Most quantizers build the same.
	// It is true in Backward.
	Training bool
	// Noise, SharedNoise and Step change from step to step. They are there while Quantize builds
	// the program of training, and in Backward, and absent elsewhere. A program that does not use
	// one does not have it among its inputs, and costs nothing for it.
	//
	// Noise is a key for [program.Builder.RandomBits], uint[2], of this site alone: a new
	// one in each step, and for an activation in each micro-batch. SharedNoise is a key,
	// new in each step, that both operands of a product have, as for a random rotation of
	// both. Step is the number of the training step as a scalar float, counted from 1.
	Noise, SharedNoise, Step program.Value
	// Activations and Weights are statistics of both operands of the product in InitTrained
	// and InitState, and absent elsewhere. Both sites of a product have the same ones. A
	// program that does not use one does not have it among its inputs, and costs nothing
	// for it. An operand of attention is multiplied with no weight: for a key, a value or a
	// query the host refuses a program that uses them.
	Activations, Weights Columns
	// Values holds the declared parameters, checked and complete.
	Values
}

// Columns are statistics of an operand of a product: of each of the columns that the product
// sums over, in the first batch, by the model in full precision; where a model is quantized after
// its training, in the texts that calibrate it. If an activation has several weights, as those of
// a gate and what it multiplies, the rows of all of them count.
type Columns struct {
	// Max is the largest magnitude in each column, and Mean the mean of the magnitudes:
	// floats of one row, in the rank of x. The rows are the tokens of the activation, with
	// zeros for padding, or the output channels of the weights.
	Max, Mean program.Value
}

// RowLen is the length of a row: the size of the last axis.
func (s Site) RowLen() int {
	if len(s.Shape) == 0 {
		return 1
	}
	return s.Shape[len(s.Shape)-1]
}

// Grid says which numbers codes stand for and what shares a scale; see [Integers], [OddIntegers]
// and [E2M1].
type Grid = spec.Grid

// Integers is the grid of the integers from min to max, with a scale for each group of so many
// consecutive elements of a row; 0: for each row or for the whole tensor.
func Integers(min, max, group int) Grid {
	return Grid{Format: spec.FormatInteger, Min: min, Max: max, Step: 1, Group: group}
}

// OddIntegers is the grid of the odd integers from −max to max, which are twice the half-integers.
func OddIntegers(max, group int) Grid {
	return Grid{Format: spec.FormatInteger, Min: -max, Max: max, Step: 2, Group: group}
}

// E2M1 is the grid of the floats of four bits.
func E2M1(group int) Grid { return Grid{Format: spec.FormatE2M1, Group: group} }

// Quantized is a quantizer's answer.
type Quantized struct {
	// Value is Q(x): on the grid, in the shape of x, and in the original domain, which means that a
	// rotation has been undone. Required.
	Value program.Value
	// Surrogate is what the backward pass differentiates instead of Value. The
	// forward value stays Value bit for bit. If it is absent, x itself takes its place:
	// the plain straight-through estimator. A [Differentiator] leaves it absent.
	Surrogate program.Value
	// Codes, Scale and Mask describe the quantization for export and diagnostics. Each
	// may be absent. Codes are integers, as int or float, in the shape of x; for a
	// quantizer that rotates, they are those of the rotated tensor. Scale has the scale
	// of each group. Mask is a bool in the shape of x, true where the gradient passes.
	Codes, Scale, Mask program.Value
	// Grid says what Codes and Scale stand for, so that exports know how to store a weight: it
	// depends on the settings, never on the tensor. An export checks that the values are those of
	// the grid, and stores weights without one as floats. The Grid of the program of evaluation
	// counts.
	Grid Grid
	// Next is the state after this step, with the names and shapes of Site.State, for a
	// [Stateful] quantizer; see there. It has no gradient. In evaluation it is not read.
	Next State
	// Homogeneous promises Q(c·x) = c·Q(x) for every c > 0, up to rounding. It holds if
	// scales are in proportion to the data, without an additive constant; it cannot hold
	// with trained parameters or state. Given this promise, the host may derive the error at a
	// rescaled point from the error that it already has.
	Homogeneous bool
}
