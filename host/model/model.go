package model

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A Model is a function of parameters that training minimizes. It has no state: the parameters
// belong to the caller.
type Model interface {
	// Params lists the parameters in the order in which every other method takes them.
	Params() []architecture.Param

	// BatchDims returns the dimensions of the int32 input that one evaluation of the function reads
	// beside the parameters. A [Language] model reads batch sequences of context tokens and the
	// token after them, or, with [Options.Documents], the rows that [DocumentRow] describes; a
	// [Quadratic] ignores both numbers.
	BatchDims(batch, context int) []int

	// Losses returns the float32 losses whose mean training minimizes. Those of a [Language] model
	// are the cross-entropies, in nats, of each token given those before it in its sequence,
	// [batch, context]: the first context columns of the batch are the input and its last ones the
	// targets. An id outside the vocabulary makes all losses NaN. With [Options.Documents], each
	// loss is multiplied by its weight. A nil quantizer leaves activations unquantized.
	Losses(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// Loss returns the mean of Losses, a scalar: the function that training minimizes. It may
	// compute its gradient along with the value, so use it only if the gradient is needed.
	Loss(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// ActivationSites lists the places at which activations are quantized if batch sequences of the
	// given context are computed at once, in the order in which the quantizer is called.
	ActivationSites(batch, context int) []ActivationSite

	// StepFLOPs returns the number of floating-point operations of one training step on batch
	// sequences of the given context, forward and backward, by the usual count. For a [Language]
	// model that is 6·N·tokens for the products with weights, where N counts all parameters except
	// an embedding that is only looked up, and 12·layers·heads·size·context·tokens for attention,
	// without regard to causality.
	StepFLOPs(batch, context int) float64
}

// A Language model predicts the next token of a sequence.
type Language interface {
	Model

	// Logits returns the unnormalized log-probabilities of the token that follows each position,
	// [batch, context, vocabulary], float32, for tokens [batch, context], int32.
	Logits(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node

	// BatchLogits returns the Logits for a batch as read by Losses, [batch, context, vocabulary]. A
	// teacher predicts with it.
	BatchLogits(params []*graph.Node, batch *graph.Node, q ActivationQuantizer) *graph.Node

	// Distilled returns the losses of a batch for learning from a teacher, whose logits, as
	// returned by its BatchLogits, are given. The loss has no gradient with respect to the teacher.
	// Its gradient may be computed along with the value, as in Loss.
	Distilled(params []*graph.Node, batch, teacher *graph.Node, q ActivationQuantizer, d Distillation) Distilled

	// SampledLoss is Loss with targets that are drawn from the predictions, instead of those of the
	// batch. key, uint32 [2], determines them. They have the weights of those in whose places they
	// are.
	SampledLoss(params []*graph.Node, batch, key *graph.Node, q ActivationQuantizer) *graph.Node

	// Labels returns how many targets the losses of batches are the mean of: (Σw)²/Σw² for targets
	// with weights w.
	Labels(batches [][]int32, context int) float64

	// Scores returns how likely the targets are: their log-probabilities, float32 [n], and whether
	// each is the likeliest token at its place, bool [n]. It has no gradient.
	Scores(params []*graph.Node, s Scored, q ActivationQuantizer) (logProbs, likeliest *graph.Node)

	// CacheDims returns the shapes of the float32 caches in which [Language.Decode] keeps what it
	// needs of batch sequences of up to length tokens.
	CacheDims(batch, length int) [][]int

	// Decode returns the unnormalized log-probabilities of the token after a piece, [batch,
	// vocabulary], and the caches with the piece added. It has no gradient.
	Decode(params []*graph.Node, piece Piece, caches []*graph.Node, q ActivationQuantizer) (logits *graph.Node, next []*graph.Node)
}

// Options say how a language model computes.
type Options struct {
	Recompute architecture.Recompute // what the backward pass computes again; "" is none
	Documents bool                   // rows of a batch may hold several documents, which are kept apart: see [DocumentRow]

	// LossTokens is the largest number of tokens whose logits a loss holds in memory at a time; 0
	// means as many as take 1 GiB.
	LossTokens int

	Sites Sites // what is quantized beside the inputs of the layers in blocks
}

// Sites says where a language model has activation sites beside the inputs of the layers in its
// blocks, and whether the weight of its head is quantized. Without any it computes as if these did
// not exist.
type Sites struct {
	Keys, Values, Queries bool // operands of attention
	Head                  bool // the input of the head, and its weight; a tied one is quantized where it is looked up, too
}

// New makes the model that the settings describe; the vocabulary of a language model must be known.
func New(s architecture.Settings, o Options) (Model, error) {
	s.FillIn()
	if _, known := families[s.Kind]; known {
		return newTransformer(s, o), nil
	}
	switch s.Kind {
	case architecture.KindQuadratic:
		return newQuadratic(s), nil
	case architecture.KindToy:
		return newToy(s), nil
	}
	return nil, fmt.Errorf("there is no model of kind %q", s.Kind)
}

// An ActivationSite is a place in a model where one tensor is quantized. If it feeds weights, it
// enters these linear layers, whose weights may be quantized, and nothing else. The activation and
// the weights may therefore be multiplied by the same orthogonal matrix along their last axes.
type ActivationSite struct {
	Name   string   // unique in the model, as in "layers.3.mlp.input"
	Kind   SiteKind // what the tensor is
	Feeds  []string // names of the weights that multiply the activation; none for operands of attention and of a tied head
	Tokens int      // rows: the positions of all sequences
	Width  int      // columns: the features, the axis that the products contract
	Heads  int      // heads of attention that the columns divide into; 0: the columns are not made of heads
}

// OfBlock reports whether the tensor is the input of a layer in a block.
func (s ActivationSite) OfBlock() bool { return s.Kind == KindInput }

// A SiteKind says what the tensor at an activation site is.
type SiteKind string

// The kinds of sites. Keys and values are as a cache holds them, and queries as keys: rotated to
// their positions, with all first coordinates of a head before all second ones.
const (
	KindInput SiteKind = "input" // of a layer in a block
	KindHead  SiteKind = "head"  // the input of the output head
	KindQuery SiteKind = "query"
	KindKey   SiteKind = "key"
	KindValue SiteKind = "value"
)

// An ActivationQuantizer returns the quantized form of the activation x, [site.Tokens, site.Width],
// with whatever gradient it defines. It is called once per site, and a second time if the backward
// pass computes it again.
type ActivationQuantizer func(site ActivationSite, x *graph.Node) *graph.Node

// apply calls the quantizer, if there is one and the model has the site. What stays as it is
// becomes an operand of products.
func (q ActivationQuantizer) apply(site ActivationSite, x *graph.Node) *graph.Node {
	if site.Name == "" {
		return x
	}
	if q != nil {
		if y := q(site, x); y != x {
			return y
		}
	}
	return lower.Unquantized(x)
}

// A Network is a [Language] model that is fully described by its settings, so that it can also be
// computed without graphs.
type Network interface {
	Language

	// Network returns the settings, with all defaults that [architecture.Settings.FillIn] fills in.
	Network() architecture.Settings
}

var _ Network = (*transformer)(nil)

// Network implements [Network].
func (m *transformer) Network() architecture.Settings { return m.Settings }
