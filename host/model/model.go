package model

import (
	"github.com/gomlx/gomlx/core/graph"
)

// A Model is a function of parameters that training minimizes. It has no state: parameters are the caller's.
type Model interface {
	// Params lists the parameters in the order in which every other method takes them.
	Params() []Param

	// BatchDims returns the dimensions of what one evaluation of the function reads beside the parameters, int32. A
	// [Language] model reads batch sequences of context tokens and the token after them; a problem without data, such
	// as [Quadratic], pays no heed to either number.
	BatchDims(batch, context int) []int

	// Losses returns the losses whose mean training minimizes, float32. Those of a [Language] model are the
	// cross-entropies, in nats, of each token given those before it in its sequence, [batch, context]: the first
	// context columns of the batch are the input and its last the targets, and an id outside the vocabulary makes all
	// losses NaN. A nil quantizer leaves activations as they are.
	Losses(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// ActivationSites lists the places at which activations are quantized when batch sequences of the given context
	// are computed at once, in the order in which the quantizer is called.
	ActivationSites(batch, context int) []ActivationSite

	// StepFLOPs returns the number of floating-point operations of one training step on batch sequences of the given
	// context, by the usual count: see [Llama.StepFLOPs].
	StepFLOPs(batch, context int) float64
}

// A Language model predicts the next token of a sequence.
type Language interface {
	Model

	// Logits returns the unnormalized log-probabilities of the token that follows each position, [batch, context,
	// vocabulary], float32, for tokens [batch, context], int32.
	Logits(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node
}

// Loss returns the mean of the model's losses, a scalar: the function that training minimizes.
func Loss(m Model, params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node {
	return graph.ReduceAllMean(m.Losses(params, batch, q))
}

// An ActivationSite is a place in a model where one tensor enters one or more linear layers with quantized weights, and
// nothing else: activation and weights may be multiplied by one orthogonal matrix along their last axes.
type ActivationSite struct {
	Name   string   // unique in the model, as in "layers.3.mlp.input"
	Feeds  []string // names of the weights that the activation is multiplied with
	Tokens int      // rows: the positions of all sequences
	Width  int      // columns: the features, the axis that the products contract
}

// An ActivationQuantizer returns the quantized form of the activation x, [site.Tokens, site.Width], with whatever
// gradient it defines. It is called once per site, and a second time for the backward pass through a block that is
// computed anew there: see Recompute in [LlamaConfig].
type ActivationQuantizer func(site ActivationSite, x *graph.Node) *graph.Node

// apply calls the quantizer, if there is one.
func (q ActivationQuantizer) apply(site ActivationSite, x *graph.Node) *graph.Node {
	if q == nil {
		return x
	}
	return q(site, x)
}
