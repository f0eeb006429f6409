package sdk

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer writes the fake quantization Q of a tensor.
type Quantizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Quantize builds Q(x) for one site of the model. x has the site's shape. It is called twice
	// for each site, for the training program and for the evaluation program ([Site.Training]), and
	// must be pure: for equal sites it writes equal programs. It refuses unsupported settings or
	// sites with [Refuse]; any other error counts as a mistake in the plugin.
	Quantize(b *program.Builder, x program.Value, site Site) (Quantized, error)
}

// Trainable is a quantizer with trained parameters of its own, such as a learned step size.
// Their initial values are computed from a sample of the tensor. The optimizer of the run
// trains them, without weight decay; checkpoints save them; CAGE does not correct them.
type Trainable interface {
	// InitTrained builds the initial values of the trained parameters from x: the weight, or the first
	// batch of activations. Quantize then finds them in Site.Trained. The gradient of the surrogate
	// trains them, so Quantize must return a surrogate. For a site without trained parameters return
	// none. The shapes must not depend on the number of rows of an activation, which differs in
	// evaluation. Site.Activations and Site.Weights are set.
	InitTrained(b *program.Builder, x program.Value, site Site) (State, error)
}

// Stateful is a quantizer with state that it carries from step to step, such as a moving average
// of a statistic. The state is not trained: the quantizer computes the next state in each step.
// Checkpoints save it, and evaluation reads it as the last step left it.
//
// Within a step, every read gives the state from before the step. The next state of a weight is
// [Quantized.Next]; that of an activation is the mean of Next over the micro-batches and the
// replicas of the step, so that it does not depend on how a batch is divided, and a moving average
// of means is exact (for maxima see [Maximal]). A step that is skipped, because its loss is not
// finite, does not change the state. Quantizers with state are refused in the products of the
// backward pass, and in runs that take gradients in full precision.
type Stateful interface {
	// InitState builds the initial state from x: the weight, or the first batch of activations.
	// Quantize then finds it in Site.State. For a site without state return none. The shapes must not
	// depend on the number of rows of an activation, which differs in evaluation. Site.Activations and
	// Site.Weights are set. State that never changes must be returned unchanged as Next.
	InitState(b *program.Builder, x program.Value, site Site) (State, error)
}

// Differentiator is a quantizer with a custom backward pass instead of a surrogate: for gradients
// that no surrogate can have because they are not linear in dy, such as those scaled by the sign of
// dy (EWGS).
type Differentiator interface {
	// Backward builds the gradients of the loss with respect to x and to the trained
	// parameters from dy, the gradient with respect to Q(x), in the shape of x. Quantize then
	// returns no surrogate; for a site that has a surrogate, return no gradients. site is the
	// same as in Quantize in training, with the same noise; Backward may call Quantize to get
	// its values. Operations common to both are executed once.
	//
	// For a weight, dy is the gradient of the mean loss of the step; for an activation, of the
	// mean loss of its micro-batch, which is larger in smaller micro-batches. So a gradient
	// should be proportional to the magnitude of dy, or not depend on dy at all. Evaluation
	// and the products of the backward pass do not use the result of Backward.
	Backward(b *program.Builder, x, dy program.Value, site Site) (Gradients, error)
}

// Gradients is the result of the backward pass of a [Differentiator].
type Gradients struct {
	// X is the gradient with respect to x, in the shape of x. Required.
	X program.Value
	// Trained has the gradient of each parameter in Site.Trained, with its name and shape.
	Trained State
}

// Packer is a quantizer whose results can be stored as integer codes and scales.
type Packer interface {
	// Unpack builds Q(x), bit for bit, from the codes and scales that Quantize returns for the
	// site; if training and evaluation differ, from those of evaluation. The Quantize method of a
	// Packer must return both at every site. Nothing else is stored: Site.Trained and Site.State
	// are empty here, so whatever decoding needs from them must be part of the scale.
	Unpack(b *program.Builder, codes, scale program.Value, site Site) (program.Value, error)
}

// Role is the kind of tensor that a quantizer is applied to.
type Role string

// The roles of a site.
const (
	RoleWeight     Role = "weight"
	RoleActivation Role = "activation"
	// RoleGradient is the gradient of the loss with respect to the output of a linear layer.
	RoleGradient Role = "gradient"
	// RoleKey, RoleValue and RoleQuery are the operands of attention, [tokens, heads·size]:
	// keys and values as in the KV cache, so keys and queries are after QK norm and rotary
	// embedding. Queries are not yet scaled by 1/√size. In each head of keys and queries the
	// first coordinates of all rotated pairs precede the second ones (half-split layout).
	RoleKey   Role = "key"
	RoleValue Role = "value"
	RoleQuery Role = "query"
)

// Product is one of the three matrix products of a linear layer with input x [tokens, in], weight W
// [out, in] and output y = x·Wᵀ [tokens, out]. dy is the gradient of the loss with respect to y.
type Product string

// The products. Each contracts the last axes of both operands, in the orientation of the sites.
const (
	// ProductForward is y = x·Wᵀ, which sums over the inputs: the sites are x and W.
	ProductForward Product = "forward"
	// ProductInputGradient is dx = dy·W, which sums over the outputs: the sites are dy
	// [tokens, out], with the role gradient, and Wᵀ [in, out], with the role weight.
	ProductInputGradient Product = "input_gradient"
	// ProductWeightGradient is dW = dyᵀ·x, which sums over the tokens: the sites are dyᵀ [out,
	// tokens], with the role gradient, and xᵀ [in, tokens], with the role activation.
	ProductWeightGradient Product = "weight_gradient"
)

// Site is a tensor of the model that a quantizer quantizes.
type Site struct {
	// Role is weight, activation, gradient, key, value or query.
	Role Role
	// Product is the matrix product that the tensor is an operand of. In the products of
	// the backward pass only the value of Q(x) is used: the surrogate is not differentiated,
	// and there can be no trained parameters. Empty means forward.
	Product Product
	// Name is the name of the weight, or of the product whose input the activation is. A
	// gradient has the name of the weight of its layer, and the operands of attention are
	// named after their block, as in layers.0.attn.keys.
	Name string
	// Layer is the index of the tensor's transformer block, from 0, or -1. Layers is the number of
	// blocks of the model, or 0 if it is unknown.
	Layer, Layers int
	// Shape is the shape of the tensor, with at least one axis. The last axis is the one that the
	// matrix product contracts. In the forward product a row is one output channel of a weight, one
	// token of an activation; in the others the tensor may be transposed: see [Product].
	Shape []int
	// Heads is the number of attention heads that the last axis is divided into, and RowHeads the same
	// for the rows; 0 means that the axis is not divided into heads. Keys and values have the number
	// of key/value heads, which in grouped-query attention is smaller than that of query heads. The
	// input and the weight of the attention output projection have the query heads. The rows of the
	// weight of the fused projection, attn.qkv, have the query, key and value heads, in this order.
	Heads, RowHeads int
	// Context is the sequence length if rows are tokens: the first Context rows are the
	// tokens of one sequence in order, followed by those of the next sequence. It is 1 when
	// text is generated or scored, because then each row may be a token of a different
	// sequence, without the tokens before it. It is 0 if rows are not tokens.
	Context int
	// Trained holds the trained parameters of a [Trainable] quantizer in Quantize and
	// Backward; elsewhere it is empty.
	Trained State
	// State is the state of a [Stateful] quantizer, or of a [Searcher], in Quantize and Backward,
	// as the last step left it; elsewhere it is empty.
	State State
	// Training selects the program that Quantize builds: true for training, false for evaluation,
	// export and use of the model. For most quantizers both are the same. It is true in Backward.
	Training bool
	// Noise, SharedNoise, Step and Steps are per-step inputs. They are set when Quantize builds the
	// training program, and in Backward, and absent elsewhere. A program has only those that it
	// uses; the others cost nothing.
	//
	// Noise is a key for [program.Builder.RandomBits], uint[2], of this site alone: a new
	// one in each step, and for an activation in each micro-batch. SharedNoise is a key,
	// new in each step, that both operands of a product share, for example for a random
	// rotation of both. Step is the number of the training step, a scalar float, from 1, and
	// Steps the number of steps of the whole run, also a scalar float. What is annealed over a
	// run must have its final form in evaluation, which may be at any step.
	Noise, SharedNoise, Step, Steps program.Value
	// Activations and Weights are statistics of both operands of the product in InitTrained and
	// InitState, and absent elsewhere. Both sites of a product get the same ones. Unused inputs are
	// left out, as above. Operands of attention are not multiplied by a weight: for a key, a value
	// or a query the host refuses a program that uses these statistics.
	Activations, Weights Columns
	// Values holds the declared parameters, checked and complete.
	Values
}

// Columns holds statistics of an operand of a product, for each column, that is, each index of the
// contracted axis. They are taken from the first batch, run in full precision, or in post-training
// quantization from the calibration texts. If several weights multiply an activation, such as the
// gate and up projections of an MLP, the weight statistics cover the rows of all of them.
type Columns struct {
	// Max is the largest magnitude in each column, and Mean the mean of the magnitudes:
	// floats of shape [1, …, 1, columns], of the rank of x. They are taken over the tokens of
	// the activation, with zeros for padding, or the output channels of the weights.
	Max, Mean program.Value
}

// RowLen returns the length of a row: the size of the last axis.
func (s Site) RowLen() int {
	if len(s.Shape) == 0 {
		return 1
	}
	return s.Shape[len(s.Shape)-1]
}

// Grid defines the numbers that codes represent and the groups that share a scale; see [Integers],
// [OddIntegers], [ZeroPoints], [E2M1] and [Affine].
type Grid = spec.Grid

// Integers returns the grid of the integers from min to max, where each run of group consecutive
// elements of a row shares a scale; group = 0 means one scale for each row or for the whole tensor.
func Integers(min, max, group int) Grid {
	return Grid{Format: spec.FormatInteger, Min: min, Max: max, Step: 1, Group: group}
}

// OddIntegers returns the grid of the odd integers from −max to max: twice the half-integers.
func OddIntegers(max, group int) Grid {
	return Grid{Format: spec.FormatInteger, Min: -max, Max: max, Step: 2, Group: group}
}

// ZeroPoints returns the grid of the integers from 0 to max minus a zero point of each group, which
// is one of them: integers from −max to max.
func ZeroPoints(max, group int) Grid {
	return Grid{Format: spec.FormatInteger, Min: -max, Max: max, Step: 1, Group: group, Span: max}
}

// E2M1 returns the grid of the four-bit floats E2M1.
func E2M1(group int) Grid { return Grid{Format: spec.FormatE2M1, Group: group} }

// Affine returns the grid of the integers from 0 to max, times the scale of a group, plus its
// minimum. Scale must have both for each group, as an axis of two elements.
func Affine(max, group int) Grid {
	return Grid{Format: spec.FormatAffine, Max: max, Step: 1, Group: group}
}

// Quantized is the result of Quantize.
type Quantized struct {
	// Value is Q(x): on the grid, in the shape of x, and in the original domain, which means that a
	// rotation has been undone. Required.
	Value program.Value
	// Surrogate is the value that the backward pass differentiates instead of Value. The
	// forward value stays Value bit for bit. If it is absent, x is used: the plain
	// straight-through estimator. A [Differentiator] leaves it absent.
	Surrogate program.Value
	// Codes, Scale and Mask describe the quantization for export and diagnostics. Each may be
	// absent. Codes are integers, as int or float, in the shape of x, of the rotated tensor if the
	// quantizer rotates. Scale has the scale of each group. Mask is a bool in the shape of x, true
	// where the gradient passes.
	Codes, Scale, Mask program.Value
	// Grid defines the numbers that Codes and Scale encode, so that exports know how to store a
	// weight. It depends on the settings, never on the tensor. An export checks that the values are
	// on the grid, and stores weights without a grid as floats. The Grid of the evaluation program
	// is used.
	Grid Grid
	// Next is the state of a [Stateful] quantizer after this step, with the names and shapes of
	// Site.State. It has no gradient, and is ignored in evaluation.
	Next State
	// Homogeneous promises Q(c·x) = c·Q(x) for every c > 0, up to rounding. It holds if
	// scales are proportional to the data, without an additive constant; it cannot hold
	// with trained parameters or state. Given this promise, the host may derive the quantization
	// error at a rescaled point from the error that it has already computed.
	Homogeneous bool
}
