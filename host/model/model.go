package model

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// A Model is a function of parameters that training minimizes. It has no state: parameters are the caller's.
type Model interface {
	// Params lists the parameters in the order in which every other method takes them.
	Params() []Param

	// BatchDims returns the dimensions of what one evaluation of the function reads beside the parameters, int32. A
	// [Language] model reads batch sequences of context tokens and the token after them, or, with [Options.Documents],
	// what [DocumentRow] describes; a [Quadratic] ignores both numbers.
	BatchDims(batch, context int) []int

	// Losses returns the losses whose mean training minimizes, float32. Those of a [Language] model are the
	// cross-entropies, in nats, of each token given those before it in its sequence, [batch, context]: the first
	// context columns of the batch are the input and its last the targets, and an id outside the vocabulary makes all
	// losses NaN. With [Options.Documents] each is multiplied with its weight. A nil quantizer leaves activations as
	// they are.
	Losses(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// Loss returns the mean of Losses, a scalar: the function that training minimizes. It may compute its gradient
	// along with the value: use it only where the gradient is needed.
	Loss(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// ActivationSites lists the places at which activations are quantized when batch sequences of the given context
	// are computed at once, in the order in which the quantizer is called.
	ActivationSites(batch, context int) []ActivationSite

	// StepFLOPs returns the number of floating-point operations of one training step on batch sequences of the given
	// context, by the usual count: for a [Language] model 6·N·tokens for the products with weights, N counting all
	// parameters but an embedding that is only looked up, and 12·layers·heads·size·context·tokens for attention without
	// regard to causality, forward and backward.
	StepFLOPs(batch, context int) float64
}

// A Language model predicts the next token of a sequence.
type Language interface {
	Model

	// Logits returns the unnormalized log-probabilities of the token that follows each position, [batch, context,
	// vocabulary], float32, for tokens [batch, context], int32.
	Logits(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node

	// BatchLogits returns those of Logits for what Losses reads, [batch, context, vocabulary]: as a teacher predicts.
	BatchLogits(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// Distilled returns the losses of a batch with which the model learns what a teacher predicts, whose logits are
	// those of BatchLogits. They have no gradient with respect to the teacher.
	Distilled(params []*graph.Node, batch, teacher *graph.Node, q ActivationQuantizer, d Distillation) Distilled

	// Scores returns how likely targets are: their log-probabilities, float32 [n], and whether each is the likeliest
	// token at its place, bool [n]. It has no gradient.
	Scores(params []*graph.Node, s Scored, q ActivationQuantizer) (logProbs, likeliest *graph.Node)

	// CacheDims returns the shapes of the caches, float32, in which [Language.Decode] keeps what it needs of batch
	// sequences of up to length tokens.
	CacheDims(batch, length int) [][]int

	// Decode returns the unnormalized log-probabilities of the token after a piece, [batch, vocabulary], and the caches
	// with the piece. It has no gradient.
	Decode(params []*graph.Node, piece Piece, caches []*graph.Node, q ActivationQuantizer) (logits *graph.Node, next []*graph.Node)
}

// Options say how a language model computes.
type Options struct {
	Recompute bool // each block is computed anew in the backward pass, instead of keeping what it computed
	Documents bool // a batch holds several documents in a row and keeps them apart: see [DocumentRow]

	// LossTokens is the number of tokens, at most, whose logits are in memory at a time for a loss; 0: as many as take
	// 1 GiB. On the CPU in float32 it says nothing.
	LossTokens int
}

// New makes the model of the settings; the vocabulary of a language model must be known.
func New(s Settings, o Options) (Model, error) {
	s.FillIn()
	switch s.Kind {
	case KindLlama, KindOLMo2, KindQwen3:
		return newTransformer(s, o), nil
	case KindQuadratic:
		return newQuadratic(s), nil
	case KindToy:
		return newToy(s), nil
	}
	return nil, fmt.Errorf("there is no model of kind %q", s.Kind)
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
// gradient it defines. It is called once per site, and a second time where the backward pass computes blocks anew.
type ActivationQuantizer func(site ActivationSite, x *graph.Node) *graph.Node

// apply calls the quantizer, if there is one.
func (q ActivationQuantizer) apply(site ActivationSite, x *graph.Node) *graph.Node {
	if q == nil {
		return x
	}
	return q(site, x)
}
