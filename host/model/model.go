package model

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// A Model is a function of parameters that training minimizes. It has no state: the parameters
// belong to the caller.
type Model interface {
	// Params lists the parameters in the order in which every other method takes them.
	Params() []architecture.Param

	// BatchDims returns the dimensions of the int32 input that one evaluation of the function takes
	// in addition to the parameters. A [Language] model reads batch sequences of context tokens and
	// the token after them, or, with [Options.Documents], the rows that [dataset.Row] describes; a
	// [Quadratic] ignores both numbers.
	BatchDims(batch, context int) []int

	// Program returns a program of package network. [network.Predict] with a zero Head computes
	// losses in nats, [network.Losses]: for a [Language] model [batch, context], the cross-entropies
	// of each token given the preceding ones in its sequence. The first context columns of the batch
	// are the input and the last context columns the targets. An id outside the vocabulary makes all
	// losses NaN. With [Options.Documents], each loss is multiplied by its weight. With wrt, names of
	// inputs, losses are replaced by their means, and it also returns the gradients of the mean loss
	// with respect to those inputs that the program has, named with "d.".
	Program(of ProgramOptions, wrt ...string) (*program.Program, error)

	// Calls say how the calls in programs of a shape are computed.
	Calls(shape network.Shape) stage.Calls

	// ActivationSites lists the activation sites for a batch of sequences of the given context, in
	// the order of computation.
	ActivationSites(batch, context int) []ActivationSite

	// StepFLOPs returns the number of floating-point operations of one training step on batch
	// sequences of the given context, forward and backward, by the usual count. For a [Language]
	// model that is 6·N·tokens for the products with weights, where N counts all parameters except
	// an embedding that is only looked up, and 12·layers·heads·size·context·tokens for attention,
	// without regard to causality.
	StepFLOPs(batch, context int) float64
}

// ProgramOptions say what a program of a model computes.
type ProgramOptions struct {
	network.Shape
	network.Quantizers
}

// A Language model predicts the next token of a sequence.
type Language interface {
	Model

	// Labels returns the effective sample size of the targets in batches, (Σw)²/Σw² for targets
	// with weights w.
	Labels(batches [][]int32, context int) float64

	// CacheDims returns the shape of each of the float32 KV caches ([network.Decode]) for batch
	// sequences of up to length tokens. Each block has one for rotated keys and one for values.
	CacheDims(batch, length int) []int

	// Network returns the settings, completed by [architecture.Settings.FillIn]. They fully
	// describe the model.
	Network() architecture.Settings

	// Head returns the name of the weight of the output head.
	Head() string

	// BlockParams lists the parameters of a block, in the order of Params. Each block can be computed
	// alone, so that only the parameters of one need be in memory. All blocks update a residual
	// stream; it begins with the rows of the embedding, which is the first of [Model.Params], times
	// the settings' InputScale.
	BlockParams(block int) []architecture.Param

	// BlockSites lists the activation sites of a block, a part of ActivationSites.
	BlockSites(block, batch, context int) []ActivationSite
}

// Options configure the computation of a language model.
type Options struct {
	Recompute architecture.Recompute // by the backward pass; "" is none
	// rows of a batch may hold several documents, between which there is no attention: see
	// [dataset.Row]
	Documents bool

	// LossTokens is about the number of tokens whose logits a loss holds in memory at a time. 0 means
	// as many as take 1 GiB in a graph; in a plan, between 16 and 128 MiB, but at least 128 tokens.
	LossTokens int

	Sites Sites // quantized tensors other than the inputs of the layers in blocks
}

// Sites selects a language model's activation sites other than the inputs of the layers in its
// blocks, and whether the weight of its head is quantized. The zero value adds nothing to the
// computation.
type Sites struct {
	Keys, Values, Queries bool // operands of attention
	// the input of the head, and its weight; a tied weight is also quantized as embedding
	Head bool
}

// New returns the model that the settings describe. A language model must have a vocabulary.
func New(s architecture.Settings, o Options) (Model, error) {
	s.FillIn()
	if s.Language() {
		return newTransformer(s, o), nil
	}
	switch s.Kind {
	case architecture.KindQuadratic:
		return newQuadratic(s), nil
	case architecture.KindToy: // f(x) = ½(x − ½)², in the CAGE paper on Pareto-optimal points
		s.Condition, s.Optimum = 1, []float64{0.5}
		return newQuadratic(s), nil
	}
	return nil, fmt.Errorf("unknown model kind %q", s.Kind)
}

// An ActivationSite is a tensor in a model that is quantized. If it feeds weights, it is the input
// of these linear layers and of nothing else, so that the activation and the weights, which may
// also be quantized, can be multiplied by the same orthogonal matrix along their last axes.
type ActivationSite struct {
	Name   string // unique in the model, as in "layers.3.mlp.input"
	Kind   SiteKind
	Feeds  []string // names of the weights that it multiplies; none in attention and for a tied head
	Tokens int      // rows: the positions of all sequences
	Width  int      // columns: the features, which the products contract
	Heads  int      // heads of attention into which the columns divide; 0: none
}

// String returns the name.
func (s ActivationSite) String() string { return s.Name }

// OfBlock reports whether the tensor is the input of a layer in a block.
func (s ActivationSite) OfBlock() bool { return s.Kind == KindInput }

// A SiteKind is the type of tensor at an activation site.
type SiteKind string

// Kinds of sites. Keys and values are quantized as they are cached, and queries as keys: rotated to
// their positions, in half-split order.
const (
	KindInput SiteKind = "input" // of a layer in a block
	KindHead  SiteKind = "head"  // the input of the output head
	KindQuery SiteKind = "query"
	KindKey   SiteKind = "key"
	KindValue SiteKind = "value"
)
