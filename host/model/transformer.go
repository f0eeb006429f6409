package model

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/engine/autodiff"
)

// transformer is what the language models here have in common: an embedding, blocks of causal attention and a
// feed-forward layer with SwiGLU on a residual stream, RMSNorm, an output head, and no biases. What a block is, its
// architecture says.
type transformer struct {
	shape  shape
	params []Param
	kind   architecture
}

// architecture is how a block is made of its parts.
type architecture interface {
	name() string // in messages
	// blockParams lists the parameters of a block, and block computes one from the residual stream x and their values.
	blockParams(s shape, prefix string) []Param
	block(s shape, x *graph.Node, w []*graph.Node, sites [4]ActivationSite, r *rope, q ActivationQuantizer) *graph.Node
	// outer draws the embedding, and the head where it is a matrix of its own.
	outer(s shape, p Param) Param
}

// newTransformer lists the parameters: embedding, those of each block, norm, and the head if it is not the embedding.
func newTransformer(s shape, kind architecture) transformer {
	m := transformer{shape: s, kind: kind}
	vocabulary := func(name string, role Role) Param {
		return kind.outer(s, Param{Name: name, Dims: []int{s.vocabulary, s.width}, Role: role, InitStd: s.initStd})
	}
	m.params = []Param{vocabulary("embedding", RoleEmbedding)}
	for layer := range s.layers {
		m.params = append(m.params, kind.blockParams(s, layerPrefix(layer))...)
	}
	m.params = append(m.params, normParam("norm", s.width))
	if !s.tied {
		m.params = append(m.params, vocabulary("head", RoleHead))
	}
	return m
}

func layerPrefix(layer int) string { return fmt.Sprintf("layers.%d.", layer) }

// matrixParam is the weight of a linear layer.
func matrixParam(name string, std float64, out, in int) Param {
	return Param{Name: name, Dims: []int{out, in}, Role: RoleMatrix, Quantized: true, Decay: true, InitStd: std}
}

// normParam is the gain of a normalization.
func normParam(name string, width int) Param {
	return Param{Name: name, Dims: []int{width}, Role: RoleNorm, InitMean: 1}
}

// Params implements [Model].
func (m *transformer) Params() []Param { return m.params }

// BatchDims implements [Model].
func (m *transformer) BatchDims(batch, context int) []int { return []int{batch, context + 1} }

// ActivationSites implements [Model]. There are four per block: the inputs of the attention's fused projection, of its
// output projection, of the two projections into the feed-forward layer, which share one, and of that out of it.
func (m *transformer) ActivationSites(batch, context int) []ActivationSite {
	var sites []ActivationSite
	for layer := range m.shape.layers {
		block := m.blockSites(layer, batch*context)
		sites = append(sites, block[:]...)
	}
	return sites
}

// Sites of a block, in the order of computation.
const (
	siteQKV = iota
	siteOut
	siteMLP
	siteDown
)

// blockSites lists the sites of one block.
func (m *transformer) blockSites(layer, tokens int) [4]ActivationSite {
	prefix := layerPrefix(layer)
	site := func(name string, width int, feeds ...string) ActivationSite {
		for i := range feeds {
			feeds[i] = prefix + feeds[i]
		}
		return ActivationSite{Name: prefix + name, Feeds: feeds, Tokens: tokens, Width: width}
	}
	return [4]ActivationSite{
		siteQKV:  site("attn.qkv.input", m.shape.width, "attn.qkv"),
		siteOut:  site("attn.out.input", m.shape.width, "attn.out"),
		siteMLP:  site("mlp.input", m.shape.width, "mlp.w1", "mlp.w2"),
		siteDown: site("mlp.down.input", m.shape.hidden, "mlp.down"),
	}
}

// Losses implements [Model].
func (m *transformer) Losses(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	dims := tokens.Shape().Dimensions
	if len(dims) != 2 || dims[1] < 2 {
		exceptions.Panicf("%s: tokens have shape %s, want [batch, context+1]", m.kind.name(), tokens.Shape())
	}
	batch, context := dims[0], dims[1]-1
	inputs := graph.Slice(tokens, graph.AxisRange(), graph.AxisRange(0, context))
	targets := graph.Slice(tokens, graph.AxisRange(), graph.AxisRange(1, context+1))
	h := m.hidden(params, inputs, q)
	losses := crossEntropy(h, m.head(params), graph.Reshape(clampIDs(targets, m.shape.vocabulary), batch*context))
	return graph.Reshape(nanUnlessValid(losses, tokens, m.shape.vocabulary), batch, context)
}

// Logits implements [Language].
func (m *transformer) Logits(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	dims := tokens.Shape().Dimensions
	if len(dims) != 2 {
		exceptions.Panicf("%s: tokens have shape %s, want [batch, context]", m.kind.name(), tokens.Shape())
	}
	logits := linear(m.hidden(params, tokens, q), m.head(params))
	return graph.Reshape(logits, dims[0], dims[1], m.shape.vocabulary)
}

// head returns the output projection, [vocabulary, width]. The gradient of a tied one is the sum over both its uses.
func (m *transformer) head(params []*graph.Node) *graph.Node {
	if m.shape.tied {
		return params[0]
	}
	return params[len(params)-1]
}

// hidden computes the normalized residual stream after the last block, [tokens, width].
func (m *transformer) hidden(params []*graph.Node, tokens *graph.Node, q ActivationQuantizer) *graph.Node {
	m.checkParams(params)
	batch, context := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	x := embed(params[0], graph.Reshape(clampIDs(tokens, m.shape.vocabulary), batch*context))
	rope := newRope(x.Graph(), m.shape, batch, context)
	norm := len(params) - 1
	if !m.shape.tied {
		norm-- // the head is behind it
	}
	blocks := params[1:norm]
	size := len(blocks) / m.shape.layers
	for layer := range m.shape.layers {
		sites := m.blockSites(layer, batch*context)
		x = m.computed(func(in []*graph.Node) *graph.Node {
			return m.kind.block(m.shape, in[0], in[1:], sites, rope, q)
		}, append([]*graph.Node{x}, blocks[layer*size:(layer+1)*size]...))
	}
	return rmsNorm(x, params[norm], m.shape.epsilon)
}

// computed returns block(in), whose intermediate values are kept for the backward pass or not.
func (m *transformer) computed(block func(in []*graph.Node) *graph.Node, in []*graph.Node) *graph.Node {
	if m.shape.recompute {
		return autodiff.Checkpoint(block, in...)
	}
	return block(in)
}

func (m *transformer) checkParams(params []*graph.Node) {
	if len(params) != len(m.params) {
		exceptions.Panicf("%s: got %d parameters, want %d", m.kind.name(), len(params), len(m.params))
	}
	for i, p := range params {
		if !sameDims(p.Shape().Dimensions, m.params[i].Dims) {
			exceptions.Panicf("%s: parameter %s has shape %s, want %v", m.kind.name(), m.params[i].Name, p.Shape(), m.params[i].Dims)
		}
	}
}

// feedForward returns W_down·(silu(W1·x) ⊙ W2·x), with the weights w1, w2 and down, for x [tokens, width].
func feedForward(x *graph.Node, w []*graph.Node, sites [4]ActivationSite, q ActivationQuantizer) *graph.Node {
	x = q.apply(sites[siteMLP], x)
	gated := q.apply(sites[siteDown], swiGLU(linear(x, w[0]), linear(x, w[1])))
	return linear(gated, w[2])
}

// StepFLOPs returns 6·N·tokens for the products with weights, N counting all parameters but the embedding, which is
// looked up, unless it is the head too; plus 12·layers·width·context·tokens for attention without regard to causality: forward and backward.
func (m *transformer) StepFLOPs(batch, context int) float64 {
	tokens := float64(batch) * float64(context)
	weights := CountParams(m.params, func(p Param) bool { return p.Role != RoleEmbedding || m.shape.tied })
	return 6*float64(weights)*tokens + 12*float64(m.shape.layers)*float64(m.shape.width)*float64(context)*tokens
}
